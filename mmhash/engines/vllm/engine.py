"""vLLM for the registry: its requests, its keys, and what the guard must know about it.

The tables list every field that the sources of any known release read. The format of chat requests
is from vLLM 0.33.0 (renderers/chat_utils).
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from mmhash.digest import Digest
from mmhash.engines.checks import packed
from mmhash.engines.engine import (
    AnnotateFormats,
    BlockList,
    BlockOptions,
    CallerField,
    ChatFormat,
    Engine,
    HashField,
    MediaField,
    Prompt,
    Step,
)
from mmhash.engines.options import is_empty
from mmhash.engines.vllm.block_extras import Lora, Span, extra_keys
from mmhash.engines.vllm.blocks import DEFAULT_ALGORITHM, block_keys
from mmhash.engines.vllm.media import SCOPES, uuid
from mmhash.engines.vllm.releases import RELEASES, applies_orientation
from mmhash.errors import InputValueError


def _explain(key: Digest, version: str) -> Iterator[Step]:
    identifier = uuid(key)
    yield "send as uuid of the content part", identifier
    item = Span(identifier, 3, 13)
    (extra,) = extra_keys([0] * 16, 16, version=version, items=[item])
    yield "a block binds it, 3 tokens in, as", repr(extra)


@cache
def _prompt_fields(version: str) -> frozenset[str]:
    recipe = RELEASES.recipe(version)
    fields = {"cache_salt", "block_algorithm", "seed", "lora", "lora_path"}
    return frozenset(fields | ({"lookahead"} if recipe.lookahead else set()))


def _lora(options: BlockOptions, version: str) -> Lora | None:
    name, path = options.get("lora"), options.get("lora_path")
    if name is None:
        return None
    if path is None and RELEASES.recipe(version).extra_keys == "tagged":
        raise InputValueError(
            f"vllm {version} binds the path of a LoRA adapter: pass lora_path too"
        )
    return Lora(name, path or "")


def _blocks(prompt: Prompt, version: str) -> BlockList:
    options = prompt.options
    algorithm = options.get("block_algorithm")
    spans = sorted(prompt.spans, key=lambda span: span.start)
    keys = block_keys(
        # The ids of a Prompt are ints. Checking the type of each takes longer than their blocks.
        packed("token_ids", prompt.token_ids),
        prompt.block_size,
        items=spans,
        cache_salt=prompt.cache_salt,
        lora=_lora(options, version),
        block_algorithm=DEFAULT_ALGORITHM if algorithm is None else algorithm,
        seed=options.get("seed"),
        lookahead=options.get("lookahead") or 0,
        version=version,
        tenant=prompt.tenant,
    )
    # Take the low 64 bits of all keys at once. event_id() does the same for one key.
    words = np.frombuffer(b"".join(keys), ">u8")
    step = len(words) // len(keys) if keys else 1
    return BlockList(keys, words[step - 1 :: step].tolist())


def _unhashed(options: dict[str, Any], version: str, modality: str) -> dict[str, Any]:
    """Return the options of a chat request that vLLM does not hash safely together with a uuid."""
    media_io = _members(options.get("media_io_kwargs"))
    processor = _members(options.get("mm_processor_kwargs"))
    if RELEASES.recipe(version).framed:
        # vLLM hashes the options of the item's own kind with the uuid, each after its length.
        # Options of other kinds are left out, except that an image's options also apply to the
        # frames of a video.
        media_io.pop(modality, None)
        others = set(SCOPES.values()) - {SCOPES[modality]}
        processor = {name: value for name, value in processor.items() if name in others}
    return {"media_io_kwargs": media_io, "mm_processor_kwargs": processor}


def _members(options: Any) -> dict[str, Any]:
    """Return the members of an object whose values are not empty."""
    if not isinstance(options, dict):
        return {}
    return {name: value for name, value in options.items() if not is_empty(value)}


# With a uuid, vLLM classifies a part by its members; without a uuid, by its type. So a part with
# two of these members gets no uuid: vLLM might then read the other member.
_CHAT = ChatFormat(
    media=(
        MediaField(
            "image_url",
            "image",
            frozenset({None, "image_url", "input_image"}),
            allows_text=True,
        ),
        MediaField("video_url", "video", frozenset({None, "video_url"}), allows_text=True),
        MediaField("audio_url", "audio", frozenset({None, "audio_url"}), allows_text=True),
        MediaField("input_audio", "audio", frozenset({None, "input_audio"}), "data"),
    ),
    hash_name="uuid",
    exclusive=frozenset(
        {
            "image_pil",
            "image_embeds",
            "audio_embeds",
            "video_embeds",
            "prompt_embeds",
            "tool_reference",
        }
    ),
)

_CALLER_FIELDS = (
    CallerField(
        "uuid",
        "hash",
        "0.18 to 0.33",
        "content parts: chat, batch chat, responses, messages, pooling, score, rerank, tokenize, "
        "render, `content_parts` of /inference/v1/generate",
        "the item's identifier, or a cached item without its media",
    ),
    CallerField(
        "multi_modal_uuids",
        "hashes",
        "all",
        "prompts of the Python API",
        "identifiers by modality",
        of_request=True,
    ),
    CallerField(
        "mm_hashes",
        "hashes",
        "0.18 to 0.33",
        "`features` of /inference/v1/generate",
        "each item's hash, from which its block keys come",
    ),
    CallerField(
        "ec_transfer_params",
        "peers",
        "0.26 to 0.33",
        "all routes that generate, and `sampling_params.extra_args`",
        "member names are hashes, values name a peer to load encoder outputs from",
        of_request=True,
    ),
    CallerField(
        "kv_transfer_params",
        "peers",
        "0.18 to 0.33",
        "the same, and Cohere's route",
        "a peer to load KV blocks from, and token ids in the prompt's place",
    ),
)

ENGINE = Engine(
    name="vllm",
    title="vLLM",
    releases=RELEASES,
    explain=_explain,
    request_fields=lambda key, _: {"uuid": uuid(key)},
    hashes_of_key=lambda key: (uuid(key),),
    applies_orientation=applies_orientation,
    blocks=_blocks,
    prompt_fields=_prompt_fields,
    annotate=AnnotateFormats(
        chat=lambda _: _CHAT,
        chat_options=("media_io_kwargs", "mm_processor_kwargs"),
        unhashed=_unhashed,
    ),
    hash_fields=(
        HashField(
            "0.18 to 0.33",
            "OpenAI route",
            "`uuid` on the content part",
            "`vllm.uuid(key)`: 64 hex digits",
        ),
        HashField("0.18 to 0.33", "Python API", "`multi_modal_uuids`", "the same"),
    ),
    caller_fields=_CALLER_FIELDS,
)
