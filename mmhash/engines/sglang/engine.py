"""SGLang for the registry: its requests, its keys, and what the guard must know about it.

The tables list every field that the sources of any known release read. The request formats are from
SGLang 0.5.23 (entrypoints/openai/protocol.py, managers/io_struct.py, tokenizer_manager.py).
"""

from collections.abc import Iterator

from mmhash.digest import Digest
from mmhash.engines.checks import packed
from mmhash.engines.engine import (
    AnnotateFormats,
    BlockList,
    CallerField,
    ChatFormat,
    Engine,
    HashField,
    MediaField,
    NativeFormat,
    Prompt,
    RequestFields,
    Span,
    Step,
)
from mmhash.engines.sglang.pads import mm_hash, pad_input_ids, pad_values, padding
from mmhash.engines.sglang.pages import named_pages
from mmhash.engines.sglang.releases import RELEASES, is_rust
from mmhash.errors import InputValueError

_CONTENT_PREFIX = "sha256:"

# The engine counts media by the list that holds it. The last list is for encoders.
_MEDIA_MEMBERS = ("image_data", "video_data", "audio_data", "mm_items")

# Members of /generate that change what the engine's processors make of an image.
_GENERATE_OPTIONS = (
    "image_max_dynamic_patch",
    "images_config",
    "max_dynamic_patch",
    "min_dynamic_patch",
    "mm_processor_kwargs",
    "modalities",
)


def _request_fields(key: Digest, version: str) -> RequestFields:
    pads = {"pad_values": pad_values(key, version=version)}
    if RELEASES.recipe(version).mm_hashes:
        return {"mm_hash": mm_hash(key), **pads}
    return pads


def _explain(key: Digest, version: str) -> Iterator[Step]:
    yield "SGLang keeps 64 bits of the key", f"{key.u64:016x}"
    if RELEASES.recipe(version).mm_hashes:
        yield "send in mm_hashes of /generate", mm_hash(key)
    yield "pad values in the prefix cache", _join(pad_values(key, version=version))
    yield "6 placeholders become", _join(padding(key, 6, version=version))


def _join(numbers: list[int]) -> str:
    return " ".join(map(str, numbers))


def _pad(token_ids: list[int], spans: list[Span], version: str) -> list[int]:
    filled = [(span.start, span.end, int(span.hash64(), 16)) for span in spans]
    return pad_input_ids(token_ids, filled, version=version)


def _prompt_fields(version: str) -> frozenset[str]:
    names = {"cache_salt", "extra_key"} if RELEASES.recipe(version).namespaces else set()
    return frozenset(names)


def _blocks(prompt: Prompt, version: str) -> BlockList:
    ids = _pad(prompt.token_ids, prompt.spans, version) if prompt.spans else prompt.token_ids
    keys, event_ids = named_pages(
        # The ids of a Prompt are ints. Checking the type of each takes longer than their pages.
        packed("token_ids", ids),
        prompt.block_size,
        extra_key=prompt.extra_key,
        cache_salt=prompt.cache_salt,
        version=version,
        tenant=prompt.tenant,
    )
    return BlockList(keys, event_ids)


_CHAT = ChatFormat(
    media=(
        MediaField("image_url", "image", frozenset({"image_url"})),
        MediaField("video_url", "video", frozenset({"video_url"}), takes_hash=False),
        MediaField("audio_url", "audio", frozenset({"audio_url"}), takes_hash=False),
    ),
    hash_name="content_hash",
    in_media=True,
    content_prefix=_CONTENT_PREFIX,
    takes_base64=True,
)

_GENERATE = NativeFormat(
    prompts={"text": 1, "input_ids": 2, "input_embeds": 3},
    media="image_data",
    hashes="mm_hashes",
    hash_name="mm_hash",
    uncounted=("video_data", "audio_data"),
)


def _chat(version: str) -> ChatFormat | None:
    # Content hashes and namespaces arrived in the same release.
    return _CHAT if RELEASES.recipe(version).namespaces else None


def _native(version: str) -> NativeFormat | None:
    return _GENERATE if RELEASES.recipe(version).mm_hashes else None


_ROUTES = "/generate and the OpenAI routes"
_OBJECTS = (
    "objects in `image_data`, `video_data`, `audio_data`, `mm_items`: `processor_output` and "
    "precomputed embeddings"
)
_CALLER_FIELDS = (
    CallerField(
        "mm_hashes",
        "hashes",
        "0.5.13 to 0.5.23",
        "/generate, /vertex_generate",
        "each item's hash, from which its pad values come",
        of_request=True,
    ),
    CallerField(
        "mm_content_hashes",
        "hashes",
        "0.5.18 to 0.5.23",
        "/generate, /vertex_generate",
        "the hash of the media's bytes, for the cache of processed media",
        of_request=True,
    ),
    CallerField(
        "content_hash",
        "hash",
        "0.5.18 to 0.5.23",
        "`image_url` on the OpenAI routes, objects in `image_data`, `mm_items` of an encoder",
        "the same for one image",
    ),
    CallerField(
        "hashes",
        "encoder",
        "0.5.10 to 0.5.23",
        "/encode of an encoder, beside `mm_items`",
        "the items' names in the cache of embeddings",
    ),
    CallerField("hash", "feature", "0.4.6.post5 to 0.5.23", _OBJECTS, "the item's hash"),
    CallerField("pad_value", "feature", "0.4.6.post5 to 0.5.23", "the same objects", "its pad"),
    CallerField("pad_values", "feature", "0.5.23", "the same objects", "its four pads"),
    CallerField("identity", "feature", "0.5.23", "the same objects", "its 256-bit identity"),
    CallerField(
        "bootstrap_host", "peer", "0.4.5.post1 to 0.5.23", _ROUTES, "a peer to load KV pages from"
    ),
    CallerField("bootstrap_port", "peer", "0.4.6 to 0.5.23", _ROUTES, "its port"),
    CallerField("bootstrap_room", "peer", "0.4.5.post1 to 0.5.23", _ROUTES, "a transfer there"),
    CallerField("bootstrap_pair_key", "peer", "0.5.2 to 0.5.23", "/generate", "a pair of peers"),
    CallerField("decode_tp_size", "peer", "0.4.7.post1 to 0.5.23", "/generate", "their layout"),
    CallerField(
        "disagg_prefill_dp_rank",
        "peer",
        "0.5.10 to 0.5.23",
        _ROUTES,
        "which prefill worker has the KV pages",
    ),
    CallerField(
        "encoder_urls", "peer", "0.5.13 to 0.5.23", "/generate", "encoders to load embeddings from"
    ),
    CallerField(
        "num_items_assigned",
        "peers",
        "0.5.7 to 0.5.23",
        "/generate",
        "how many items each encoder has",
    ),
    CallerField(
        "need_wait_for_image",
        "peer",
        "0.5.7 to 0.5.9",
        "/generate",
        "that embeddings come from an encoder",
    ),
    CallerField("need_wait_for_mm_inputs", "peer", "0.5.10 to 0.5.23", "/generate", "the same"),
    CallerField(
        "mm_data_mooncake",
        "peers",
        "0.5.13 to 0.5.18",
        "/generate",
        "media for an encoder, by names in a store",
    ),
    CallerField("prefill_host", "peer", "0.5.7 to 0.5.23", "an encoder's routes", "a receiver"),
    CallerField("embedding_port", "peer", "0.5.7 to 0.5.23", "an encoder's routes", "its ports"),
    CallerField("receive_url", "peer", "0.5.7 to 0.5.23", "an encoder's routes", "a receiver"),
    CallerField(
        "buffer_address",
        "peer",
        "0.5.7 to 0.5.23",
        "/send of an encoder",
        "where in a receiver's memory an embedding goes",
    ),
    CallerField(
        "kv_hints",
        "peers",
        "0.5.21 to 0.5.23",
        "/generate",
        "actions on stored KV pages, from an orchestrator",
    ),
    CallerField(
        "lora_id",
        "peer",
        "0.4.9.post4 to 0.5.23",
        "/generate, /encode",
        "an adapter by its internal id, which is joined to `extra_key`",
    ),
    CallerField(
        "http_worker_ipc",
        "peer",
        "0.5.4 to 0.5.23",
        "/generate, /encode",
        "the process that gets the output",
    ),
    *(
        CallerField(
            f"x-override-{name.replace('_', '-')}",
            "header",
            "0.5.15 to 0.5.23",
            "header of /generate",
            f"`{name}`",
        )
        for name in ("bootstrap_host", "bootstrap_port", "bootstrap_room", "disagg_prefill_dp_rank")
    ),
)


def _hashes_files(server: str, version: str) -> bool:
    if server != "mmhash":
        return is_rust(server, version)
    if not RELEASES.recipe(version).namespaces:
        raise InputValueError(
            f"mmhash does not know the plugin in sglang {version}: use 0.5.20 or newer"
        )
    return True


ENGINE = Engine(
    name="sglang",
    title="SGLang",
    releases=RELEASES,
    explain=_explain,
    request_fields=_request_fields,
    hashes_of_key=lambda key: (mm_hash(key), f"{_CONTENT_PREFIX}{key.hex()}"),
    hashes_files=_hashes_files,
    blocks=_blocks,
    prompt_fields=_prompt_fields,
    pad_values=lambda item, version: pad_values(item, version=version),
    pad=_pad,
    annotate=AnnotateFormats(chat=_chat, native=_native, native_options=_GENERATE_OPTIONS),
    hash_fields=(
        HashField(
            "0.5.13 to 0.5.23",
            "native `/generate`",
            "`mm_hashes`, an entry per item",
            "`sglang.mm_hash(key)`: 16 hex digits",
        ),
        HashField(
            "0.5.20 to 0.5.23",
            "OpenAI route",
            "`image_url.content_hash`",
            "`sglang.content_hash(bytes)`: `sha256:` of the media bytes",
        ),
        HashField("0.4.3 to 0.5.12", "any", "none", "see below"),
    ),
    caller_fields=_CALLER_FIELDS,
    media_members=_MEDIA_MEMBERS,
    feature_formats=frozenset({"processor_output", "precomputed_embedding"}),
    unguarded_variable="SGLANG_RUST_SERVER",
    compression_headers=("x-body-compressed",),  # read since 0.5.15
)
