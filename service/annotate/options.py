"""Processing options of a request: a key that names them as well as the media.

An engine reuses what its processor made of an item under the caller's hash. Where it does not add
the options to that hash in a way that keeps different ones apart, the hash has to differ by them
(docs/spec.md, section 10).
"""

import json
from typing import Any

from blake3 import blake3
from msgspec import Raw

from mmhash import Digest
from mmhash.engines.vllm.releases import RELEASES
from mmhash.framing import field
from mmhash_service.annotate.raw_json import Object, open_object
from mmhash_service.api.problems import Problem

OPTIONS_CONTEXT = "mmhash 2026-11-22 options v1"

MAX_DEPTH = 32

# vLLM's options of a processor that are for one kind of media.
_SCOPED = {"image": "images_kwargs", "video": "videos_kwargs", "audio": "audio_kwargs"}

# Members of SGLang's /generate that change what its processors make of an image.
_SGLANG = (
    "image_max_dynamic_patch",
    "images_config",
    "max_dynamic_patch",
    "min_dynamic_patch",
    "mm_processor_kwargs",
    "modalities",
)


def with_options(key: Digest, options: str) -> Digest:
    """The key of an item together with the canonical text of its options, if there are any."""
    if not options:
        return key
    made = blake3(key.bytes + field(options.encode()), derive_key_context=OPTIONS_CONTEXT)
    return Digest("blake3", made.digest())


def vllm_options(body: Object, release: str, modality: str) -> str:
    """The options of a chat request that vLLM does not hash safely with a uuid of that modality."""
    media_io = _members(body.get("media_io_kwargs"))
    processor = _members(body.get("mm_processor_kwargs"))
    if RELEASES.recipe(release).framed:
        # The options of the item's own kind are hashed with the uuid, each part behind its length.
        # Those of other kinds are left out, but an image's are for a video's frames too.
        media_io.pop(modality, None)
        others = set(_SCOPED.values()) - {_SCOPED[modality]}
        processor = {name: value for name, value in processor.items() if name in others}
    return _text({"media_io_kwargs": media_io, "mm_processor_kwargs": processor})


def sglang_options(body: Object) -> str:
    """The options of a /generate request that SGLang does not hash with `mm_hashes`."""
    return _text({name: _value(body[name]) for name in _SGLANG if name in body})


class _Number(str):
    """A number as it was spelled."""


def _members(raw: Raw | None) -> dict[str, Any]:
    """The members of an object that are not empty."""
    members = open_object(raw) or {}
    return {name: found for name, one in members.items() if not _is_empty(found := _value(one))}


def _value(raw: Raw) -> Any:
    try:
        return json.loads(bytes(raw), parse_float=_Number, parse_int=_Number)
    except RecursionError as error:
        raise Problem("invalid-json") from error


def _is_empty(value: Any) -> bool:
    return value is None or value in ({}, [])


def _text(options: dict[str, Any]) -> str:
    """The canonical JSON of those options that are not empty; nothing if all are."""
    options = {name: value for name, value in options.items() if not _is_empty(value)}
    return _canonical(options, 1) if options else ""


def _canonical(value: Any, depth: int) -> str:
    """JSON without blanks, members sorted by the code points of their names, numbers as spelled."""
    if depth > MAX_DEPTH:
        raise Problem("invalid-json")
    if isinstance(value, dict):
        members = (
            f"{_quoted(name)}:{_canonical(one, depth + 1)}" for name, one in sorted(value.items())
        )
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_canonical(one, depth + 1) for one in value) + "]"
    return str(value) if isinstance(value, _Number) else _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
