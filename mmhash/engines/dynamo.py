"""The hashes of items and blocks that Dynamo's frontend, router and workers use.

Dynamo sends its workers a 64-bit hash as 16 hex digits.
"""

import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64, xxh3_64_hexdigest, xxh3_64_intdigest

from mmhash.arguments import check_bool, check_int, check_text
from mmhash.cpu import Hasher, hash_bytes
from mmhash.digest import Digest
from mmhash.engines import checks, engine
from mmhash.engines.engine import (
    BlockList,
    CallerField,
    Engine,
    HashField,
    Prompt,
    Step,
)
from mmhash.engines.releases import Range, Releases
from mmhash.errors import InputTypeError, InputValueError
from mmhash.pil_image import is_image
from mmhash.view import bytes_of, view_of

if TYPE_CHECKING:
    from PIL import Image

# There is one recipe so far: `RELEASES.recipe(version)` is called only to reject unknown releases.
RELEASES: Releases[None] = Releases("dynamo", Range("1.6.0", "1.6.1", None))
LATEST = RELEASES.latest

Tokens = Sequence[int] | npt.NDArray[np.integer[Any]]

_SEED = 1337
_HEX_16 = re.compile(r"[0-9a-fA-F]{16}")

# Modes that Dynamo's decoder keeps. Dynamo converts all other modes, and the caller can do the
# same.
_DECODED_MODES = ("L", "LA", "RGB", "RGBA")


class RoutingSpan(NamedTuple):
    """The placeholders of an item among the tokens.

    `is_embed`, a list, array or tensor, says which of the `length` places are placeholders. If it
    is None, all places are.
    """

    mm_hash: str | None
    offset: int
    length: int
    is_embed: Any = None


@checks.readable("decoded")
def mm_hash(decoded: Any, *, version: str = LATEST) -> str:
    """Return the hash of decoded pixels: a uint8 array or tensor of any shape, or a PIL image.

    Dynamo decodes JPEG with libjpeg-turbo, or in Rust. If Pillow decodes other pixels, the hash
    differs.
    """
    RELEASES.recipe(version)
    if is_image(decoded):
        data: bytes | memoryview = _pixels(decoded, _DECODED_MODES)
        shape: tuple[int, ...] = (decoded.height, decoded.width, len(decoded.mode))
    else:
        view = view_of(decoded)
        if view.dtype != "uint8":
            raise InputTypeError(
                f"Dynamo hashes decoded uint8 pixels, not {view.dtype or view.kind}"
            )
        data, shape = view.on_host(), view.shape
    if not len(data):
        raise InputValueError("Dynamo does not hash an item without pixels")
    state = xxh3_64(struct.pack(f"<{len(shape) + 1}QB", len(shape), *shape, 0))
    state.update(data)
    return state.hexdigest()


def url_hash(url: str, *, version: str = LATEST) -> str:
    """Return the hash of an item that the frontend does not decode: the hash of its URL."""
    RELEASES.recipe(version)
    return xxh3_64_hexdigest(check_text("url", url).encode())


@checks.readable("data")
def bytes_hash(data: Any, *, version: str = LATEST) -> str:
    """Return the 64 hex digits under which a TensorRT-LLM worker caches an encoded item."""
    RELEASES.recipe(version)
    view = view_of(data)
    if view.kind != "bytes":
        raise InputTypeError(f"data must be the bytes of an encoded item, not a {view.kind}")
    return hash_bytes(view.on_host(), "blake3").hex()


@checks.readable("image")
def image_uuid(image: Any, *, version: str = LATEST) -> str:
    """Return the 64 hex digits by which a vLLM worker identifies an image that it decoded itself.

    Accepts what the worker accepts: a PIL image of mode RGB, or a uint8 numpy array (height, width,
    3).
    """
    RELEASES.recipe(version)
    if is_image(image):
        data: bytes | memoryview = _pixels(image, ("RGB",))
        height, width = image.height, image.width
    elif not isinstance(image, np.ndarray):
        raise InputTypeError(
            f"image must be a PIL image or a numpy array, not {type(image).__name__}"
        )
    elif image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise InputValueError(
            f"image must be uint8 of shape (height, width, 3), not {image.dtype} of {image.shape}"
        )
    else:
        data = bytes_of(image)
        height, width, _ = image.shape
    header = struct.pack("<BBBBII", 1, 0, 0, 3, height, width)
    return Hasher().update(header).update(data).hexdigest()


def uuid(mm_hash: str, *, version: str = LATEST) -> str:
    """Return a hash as Dynamo sends it to vLLM: its first 16 digits, then 48 zeros."""
    RELEASES.recipe(version)
    mm_hash = check_text("mm_hash", mm_hash)
    if _HEX_16.match(mm_hash) is None:
        raise InputValueError(f"mm_hash must start with 16 hex digits, not {mm_hash[:16]!r}")
    return mm_hash[:16] + "0" * 48


def pad_value(mm_hash: str, *, version: str = LATEST) -> int:
    """Return the number that the router uses in place of each of an item's placeholders.

    The number holds 30 bits of the hash, like SGLang's pad values before 0.5.23.
    """
    RELEASES.recipe(version)
    return _pad(_u64("mm_hash", mm_hash))


def routing_tokens(
    tokens: Tokens, spans: Sequence[RoutingSpan | engine.Span], *, version: str = LATEST
) -> list[int] | None:
    """Return the tokens by which the router chooses workers, with pad values for placeholders.

    Return None if no placeholder was replaced: then Dynamo routes by the text. As in Dynamo, a span
    without a hash is skipped, a span past the last token is cut, and only the first 16 digits of a
    hash count.
    """
    RELEASES.recipe(version)
    routed: list[int] = _u32s(tokens).tolist()
    replaced = False
    for span in _spans(spans):
        if span.mm_hash is None:
            continue
        pad = _pad(_leading_u64(span.mm_hash))
        for place in _places(span, len(routed)):
            routed[place] = pad
            replaced = True
    return routed if replaced else None


def block_keys(
    tokens: Tokens,
    block_size: int,
    *,
    items: Sequence[Sequence[str] | None] | None = None,
    lora: str | None = None,
    cache_salt: str | None = None,
    eagle: bool = False,
    version: str = LATEST,
) -> list[str]:
    """Return the hash of each full block of tokens, not chained: `sequence_keys` chains them.

    `items` has an entry for each block: the hashes, in any order, of the items that reach into the
    block. The list may end early. With `eagle`, a block also covers the first token of the next
    block.
    """
    RELEASES.recipe(version)
    block_size = check_int("block_size", block_size, 1, (1 << 32) - 1)
    eagle = check_bool("eagle", eagle)
    data = _u32s(tokens).tobytes()
    seed = _seed(lora, cache_salt)
    window = 4 * (block_size + eagle)
    starts = range(0, len(data) - window + 1, 4 * block_size)
    tails = chain(_tails(items), repeat(b""))
    return [
        xxh3_64_hexdigest(data[start : start + window] + tail, seed)
        for start, tail in zip(starts, tails, strict=False)
    ]


def sequence_keys(block_keys: Sequence[str], *, version: str = LATEST) -> list[str]:
    """Return the hash of all tokens up to the end of each block."""
    RELEASES.recipe(version)
    blocks = [_u64("block_keys", key) for key in checks.listed("block_keys", block_keys)]
    sequences = blocks[:1]
    for block in blocks[1:]:
        sequences.append(xxh3_64_intdigest(struct.pack("<QQ", sequences[-1], block), _SEED))
    return [f"{sequence:016x}" for sequence in sequences]


def _pixels(image: "Image.Image", modes: tuple[str, ...]) -> bytes:
    try:
        pixels = image.tobytes()
    except Exception as error:  # Pillow's parsers raise many kinds of errors
        raise InputValueError("the image is truncated or damaged: it cannot be decoded") from error
    if image.mode not in modes:
        raise InputValueError(
            f"Dynamo hashes images of mode {' or '.join(modes)}, not {image.mode}: convert this one"
        )
    return pixels


def _pad(mm_hash: int) -> int:
    return 1_000_000 + mm_hash % (1 << 30)


def _leading_u64(mm_hash: str) -> int:
    mm_hash = check_text("mm_hash", mm_hash)
    try:
        return int(mm_hash[:16], 16)
    except ValueError:
        raise InputValueError(f"mm_hash must start with hex digits, not {mm_hash[:16]!r}") from None


def _spans(spans: Any) -> list[RoutingSpan]:
    found = checks.listed("spans", spans)
    for index, span in enumerate(found):
        if isinstance(span, engine.Span):
            span = RoutingSpan(span.hash64(), span.start, span.end - span.start)  # noqa: PLW2901
        if not isinstance(span, RoutingSpan):
            raise InputTypeError(f"spans must hold RoutingSpans, not {type(span).__name__}")
        found[index] = span._replace(
            offset=check_int("offset", span.offset, 0), length=check_int("length", span.length, 0)
        )
    return found


def _places(span: RoutingSpan, count: int) -> Sequence[int]:
    """Return the indices of a span's placeholders among `count` tokens."""
    stop = min(span.offset + span.length, count)
    if span.is_embed is None:
        return range(span.offset, stop)
    mask = checks.listed("is_embed", checks.unpacked(span.is_embed))[: stop - span.offset]
    if any(type(is_set) not in {bool, int} for is_set in mask):
        raise InputTypeError("is_embed must hold True or False")
    places = [span.offset + index for index, is_set in enumerate(mask) if is_set]
    # If a span begins past the tokens, Dynamo cuts its mask from the end, then fails.
    if places and places[-1] >= count:
        raise InputValueError(f"offset {span.offset} is past the {count} tokens")
    return places


def _seed(lora: str | None, cache_salt: str | None) -> int:
    seed = _SEED
    for name, value, inner_seed in (("lora", lora, 0), ("cache_salt", cache_salt, 1)):
        text = "" if value is None else check_text(name, value)
        if text:  # Dynamo treats an empty name as no name
            seed += xxh3_64_intdigest(text.encode(), inner_seed)
    return seed % (1 << 64)


def _tails(items: Sequence[Sequence[str] | None] | None) -> list[bytes]:
    """Return the bytes that each block's items add to its tokens."""
    blocks = [] if items is None else checks.listed("items", items)
    return [
        struct.pack(f"<{len(hashes)}Q", *sorted(_u64("items", text) for text in hashes))
        for hashes in (
            checks.listed("a block of items", [] if block is None else block) for block in blocks
        )
    ]


def _u32s(tokens: Any) -> npt.NDArray[np.uint32]:
    found = checks.tokens("tokens", tokens)
    if isinstance(found, np.ndarray):
        if found.ndim != 1:
            raise InputTypeError(
                f"tokens must be a row of ints, not {found.dtype} of {found.shape}"
            )
        if found.size and not 0 <= found.min() <= found.max() < 1 << 32:
            raise InputValueError("tokens holds a number that is not from 0 to 2**32 - 1")
        return found.astype("<u4")
    try:
        return np.array(array("I", found), "<u4")
    except OverflowError:
        raise InputValueError("tokens holds a number that is not from 0 to 2**32 - 1") from None


def _u64(name: str, mm_hash: str) -> int:
    mm_hash = check_text(name, mm_hash)
    if _HEX_16.fullmatch(mm_hash) is None:
        raise InputValueError(f"{name}: a hash must be 16 hex digits, not {mm_hash[:40]!r}")
    return int(mm_hash, 16)


def _mm_hash_of_key(key: Digest) -> str:
    return f"{key.u64:016x}"


def _explain(key: Digest, version: str) -> Iterator[Step]:
    sent = _mm_hash_of_key(key)
    yield "send in extra_args.mm_hashes", sent
    yield "Dynamo gives it to vLLM as uuid", uuid(sent, version=version)
    yield "and routes by the pad value", str(pad_value(sent, version=version))


def _blocks(prompt: Prompt, version: str) -> BlockList:
    size = prompt.block_size
    items: list[list[str]] = [[] for _ in range(len(prompt.token_ids) // size)]
    for span in prompt.spans:
        for block in items[span.start // size : -(-span.end // size)]:
            block.append(span.hash64())
    keys = block_keys(
        prompt.token_ids,
        size,
        items=items,
        lora=prompt.options.get("lora"),
        cache_salt=prompt.cache_salt,
        version=version,
    )
    # The router's index looks up a block by the block's own hash, which events carry as
    # tokens_hash.
    event_ids = [int(key, 16) for key in keys]
    sequences = sequence_keys(keys, version=version)
    return BlockList([bytes.fromhex(key) for key in sequences], event_ids)


ENGINE = Engine(
    name="dynamo",
    title="Dynamo",
    releases=RELEASES,
    explain=_explain,
    request_fields=lambda key, _: {"mm_hash": _mm_hash_of_key(key)},
    hashes_of_key=lambda key: (_mm_hash_of_key(key),),
    blocks=_blocks,
    prompt_fields=lambda _: frozenset({"cache_salt", "lora"}),
    hash_fields=(
        HashField("1.6", "frontend to worker", "`extra_args.mm_hashes`", "16 hex digits"),
    ),
    caller_fields=(
        CallerField(
            "multi_modal_uuids", "hashes", "all", "frontend to worker", "identifiers by modality"
        ),
        CallerField(
            "mm_hashes",
            "hashes",
            "1.6",
            "`extra_args`",
            "each item's hash, from which its pad values or its block keys come",
        ),
        CallerField(
            "mm_hashes_by_modality", "hashes", "1.6", "`extra_args`", "the same by modality"
        ),
        CallerField("bootstrap_info", "peers", "1.6", "frontend to worker", "a peer to load from"),
        CallerField("prefill_result", "peers", "1.6", "frontend to worker", "a peer's KV blocks"),
        CallerField("mm_kwargs_shm", "peers", "1.6", "`extra_args`", "features in shared memory"),
    ),
)
