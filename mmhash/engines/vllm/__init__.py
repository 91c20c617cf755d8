"""vLLM's identifiers of items and the keys of its prefix cache, by release.

`version` is a release of the engine, by default the newest known.
"""

from mmhash.engines.vllm.block_extras import ExtraKeys, Lora, Span, event_extra_keys, extra_keys
from mmhash.engines.vllm.blocks import block_key, block_keys, event_id, none_hash
from mmhash.engines.vllm.engine import ENGINE
from mmhash.engines.vllm.media import (
    EncodedMedia,
    hashes_files,
    identifiers,
    image_identifier,
    mm_hash,
    uuid,
)
from mmhash.engines.vllm.releases import LATEST, RELEASES

__all__ = [
    "ENGINE",
    "LATEST",
    "RELEASES",
    "EncodedMedia",
    "ExtraKeys",
    "Lora",
    "Span",
    "block_key",
    "block_keys",
    "event_extra_keys",
    "event_id",
    "extra_keys",
    "hashes_files",
    "identifiers",
    "image_identifier",
    "mm_hash",
    "none_hash",
    "uuid",
]
