"""The description of an engine: everything the rest of mmhash needs to know about it.

Each engine's module defines one `ENGINE`, and `registry` lists them. If an attribute is None, the
engine lacks that feature.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypedDict

from mmhash.digest import Digest
from mmhash.engines.options import with_options, with_orientation
from mmhash.engines.releases import Releases
from mmhash.errors import InputValueError
from mmhash.tags import TAGS_MEMBER

RequestFields = dict[str, Any]
"""The request fields that carry a key, and the values that the engine derives from the fields."""

Server = Literal["python", "rust", "mmhash"]
"""Who names media in SGLang: the server in Python ("python"), the server in Rust ("rust",
SGLANG_RUST_SERVER=1), or mmhash's plugin ("mmhash", MMHASH_PLUGIN=keys).
"""

Step = tuple[str, str]
"""A line of `mmhash explain`: a description and a value."""

# Kinds of request fields by which a caller reaches an engine's caches:
# "hash": one hash; "hashes": many; "encoder": many, beside `mm_items`;
# "feature": identifies features that the caller computed, inside media objects;
# "peer": a text, number or list that names a peer or internal state; "peers": also an object;
# "header": the same in an HTTP header.
Kind = Literal["hash", "hashes", "encoder", "feature", "peer", "peers", "header"]


class NoFieldError(InputValueError):
    """This request has no place for a hash."""


class ItemSpanError(InputValueError):
    """A span does not identify its item in the form that the engine needs."""


@dataclass(frozen=True, slots=True)
class Span:
    """The placeholders of one item, from `start` up to `end`, and its key or its 64-bit hash.

    The client and every engine's functions accept this span. Some engines also have their own
    spans, such as `vllm.Span`, for identifiers that are not keys.

    Args:
        start: The index of the first placeholder.
        end: The index after the last placeholder.
        key: The item's key …
        hash: … or its 64-bit hash, 16 hex digits, which suffices for SGLang.

    >>> Span(3, 7, mmhash.key(b"abc")).hash64()
    '0f3e80300d68299e'
    """

    start: int
    end: int
    key: Digest | None = None
    hash: str | None = None

    def __post_init__(self) -> None:
        if (self.key is None) == (self.hash is None):
            given = "neither" if self.key is None else "both"
            raise ItemSpanError(f"a span must have a key or a hash, not {given}")

    def payload(self) -> dict[str, Any]:
        """Return the span as the service takes it in JSON."""
        item = {"hash": self.hash} if self.key is None else {"key": self.key.hex()}
        return {"start": self.start, "end": self.end} | item

    def whole_key(self) -> Digest:
        """Return the key; raise an error if the span has only a 64-bit hash."""
        if self.key is None:
            raise ItemSpanError("the engine needs the whole key: a 64-bit hash is not enough")
        return self.key

    def hash64(self) -> str:
        """Return the 64-bit hash as 16 hex digits; for a key, its first 64 bits."""
        return self.hash or f"{self.whole_key().u64:016x}"


class BlockOptions(TypedDict, total=False):
    """The options of an engine, and the adapter of a request, that change the keys of blocks."""

    block_algorithm: str | None
    """vLLM's `--prefix-caching-hash-algo`."""
    seed: str | None
    """The PYTHONHASHSEED of vLLM."""
    lora: str | None
    """The name of a LoRA adapter."""
    lora_path: str | None
    """The adapter's path, which block keys include since vLLM 0.31."""
    lookahead: int | None
    """How many tokens after a block vLLM includes in its key."""


_BLOCK_OPTIONS = tuple(BlockOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A tokenized prompt, as `/blocks` takes it; None for fields that the prompt lacks."""

    token_ids: list[int]
    block_size: int
    spans: list[Span] = field(default_factory=list)
    cache_salt: str | None = None
    extra_key: str | None = None
    options: BlockOptions = field(default_factory=BlockOptions)
    """These options, and perhaps others (a plan's)."""
    tenant: bytes | None = None
    """Whose prompt this is. It changes no key: names are kept for each tenant."""

    @property
    def special_fields(self) -> list[str]:
        """The names of this prompt's fields and options that only some engines support."""
        options: Mapping[str, object] = self.options
        special = {"cache_salt": self.cache_salt, "extra_key": self.extra_key}
        names = [name for name, value in special.items() if value is not None]
        return names + [name for name in _BLOCK_OPTIONS if options.get(name) is not None]


class BlockList(NamedTuple):
    """The keys of blocks as an engine's cache stores them, and the block ids in KV events."""

    keys: list[bytes]
    event_ids: list[int]

    @property
    def blocks(self) -> list[str]:
        """The keys in hex."""
        return [key.hex() for key in self.keys]


class HashField(NamedTuple):
    """A request field that carries a hash, as a row of docs/engines.md."""

    releases: str
    """Such as `0.5.13 to 0.5.23`, or `all`."""
    request: str
    field: str
    value: str


class CallerField(NamedTuple):
    """A request field through which a caller can reach the engine's caches: a row of docs/guard.md.

    `of_request` is True for members of a whole request, from which `/annotate` removes them.
    """

    name: str
    kind: Kind
    releases: str
    where: str
    effect: str
    of_request: bool = False


class MediaField(NamedTuple):
    """A member of a chat's content part that holds media.

    The media is the member `text` of its object, or the member itself if `allows_text`.
    """

    name: str
    modality: Literal["image", "video", "audio"]
    types: frozenset[str | None]
    """The values of a part's `type` for which the engine reads this member."""
    text: Literal["url", "data"] = "url"
    allows_text: bool = False
    takes_hash: bool = True


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """The places of media and hashes in an OpenAI chat request.

    The hash is the member `hash_name` of the part, or of the media object if `in_media`. Its value
    is the engine's request field of the same name. With `content_prefix`, the value is that prefix
    and the SHA-256 of the media's bytes. If the engine has `exclusive` members, a part with two of
    the members `media` and `exclusive` is ambiguous and gets no hash.
    """

    media: tuple[MediaField, ...]
    hash_name: str
    in_media: bool = False
    content_prefix: str | None = None
    takes_base64: bool = False
    exclusive: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NativeFormat:
    """The places of media and hashes in an engine's native request, which holds parallel lists.

    `prompts` maps each member that can hold the prompt to how deep a batch nests its lists. The
    list `hashes` has an entry for each item of `media`: the value of the request field `hash_name`.
    The engine also counts the media of `uncounted`, so a request that has any gets no hashes.
    """

    prompts: Mapping[str, int]
    media: str
    hashes: str
    hash_name: str
    uncounted: tuple[str, ...]


def _no_options(options: dict[str, Any], version: str, modality: str) -> dict[str, Any]:
    del version, modality
    return options


@dataclass(frozen=True, slots=True)
class AnnotateFormats:
    """The requests that `/annotate` accepts for an engine.

    `chat` and `native` return the format of a release, or None if that release takes no hash there.
    `chat_options` and `native_options` are the members of a request that change what a processor
    makes of an item. `unhashed` returns those options that the release does not hash safely
    together with a caller's hash.
    """

    chat: Callable[[str], ChatFormat | None] | None = None
    native: Callable[[str], NativeFormat | None] | None = None
    chat_options: tuple[str, ...] = ()
    native_options: tuple[str, ...] = ()
    unhashed: Callable[[dict[str, Any], str, str], dict[str, Any]] = _no_options


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine, as the registry lists it.

    Callers pass its functions only releases in `releases`.
    """

    name: str
    title: str
    releases: Releases[Any]
    explain: Callable[[Digest, str], Iterator[Step]]
    """The steps from a key to its place in the engine's cache."""
    request_fields: Callable[[Digest, str], RequestFields]
    """The request fields that carry a key."""
    hashes_of_key: Callable[[Digest], tuple[str, ...]] = lambda _: ()
    """Every text that a tag for this key allows in a request, whatever the release."""

    hashes_files: Callable[[str, str], bool] | None = None
    """True for a server ("rust", "mmhash") and release that name an image by its file."""

    applies_orientation: Callable[[str], bool] = lambda _: True
    """False for a release that applies EXIF orientation for no model."""

    blocks: Callable[[Prompt, str], BlockList] | None = None
    prompt_fields: Callable[[str], frozenset[str]] = lambda _: frozenset()
    """The special fields of a prompt that the function `blocks` reads, by release."""
    pad_values: Callable[[Digest | int | bytes, str], list[int]] | None = None
    pad: Callable[[list[int], list[Span], str], list[int]] | None = None
    annotate: AnnotateFormats | None = None

    hash_fields: tuple[HashField, ...] = ()
    caller_fields: tuple[CallerField, ...] = ()
    media_members: tuple[str, ...] = ()
    """Members of requests that hold media objects, possibly in nested lists."""
    feature_formats: frozenset[str] = frozenset()
    """The formats of media objects that hold features, in lower case."""
    unguarded_variable: str | None = None
    """An environment variable that makes the engine serve without an ASGI app, so unguarded."""
    compression_headers: tuple[str, ...] = ()
    """Headers other than Content-Encoding that make the engine decompress a body."""

    @cached_property
    def caller_request_members(self) -> frozenset[str]:
        """Members of a whole request that a caller may not set, including the members for tags."""
        names = (field.name for field in self.caller_fields if field.of_request)
        return frozenset({TAGS_MEMBER, *names})

    @cached_property
    def caller_media_members(self) -> frozenset[str]:
        """Members with which a caller's media objects identify their content."""
        fields = self.caller_fields
        return frozenset(field.name for field in fields if field.kind in {"hash", "feature"})

    def name_item(
        self, key: Digest, version: str, *, options: str = "", orientation: int = 1
    ) -> Digest:
        """Return the key that a release must use to name an item.

        `options` is the canonical text of the options that the release does not hash. `orientation`
        is the EXIF orientation of an image whose key comes from its pixels and so does not cover
        it.
        """
        if orientation != 1 and self.applies_orientation(version):
            options = with_orientation(options, orientation)
        return with_options(key, options)

    def names_by_file(self, server: str, version: str) -> bool:
        """Return True if a server names images by their files: then requests carry no hashes.

        Raise an error for a server that the engine does not have.
        """
        if self.hashes_files is not None:
            return self.hashes_files(server, version)
        if server != "python":
            raise InputValueError(f"{self.name} has no server {server[:40]!r}")
        return False

    def prompt_blocks(self, prompt: Prompt, version: str) -> BlockList:
        """Return the blocks of a prompt. Raise an error for a field that the release lacks."""
        if self.blocks is None:
            raise InputValueError(f"mmhash does not know how {self.name} names blocks")
        known = self.prompt_fields(version)
        for name in prompt.special_fields:
            if name not in known:
                taken = ", ".join(sorted(known)) or "no such field"
                raise InputValueError(
                    f"{self.name} {version} has no {name}: leave it out (it takes {taken})"
                )
        return self.blocks(prompt, version)
