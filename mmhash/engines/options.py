"""Keys that cover the processing options of a request as well as the media.

An engine reuses its processor's output under the caller's hash. If the engine does not add the
options to that hash unambiguously, the hash itself must depend on them (docs/spec.md, section 10).
The EXIF orientation is such an option for an image whose key comes from its pixels.
"""

import json
from typing import Any

from blake3 import blake3

from mmhash.digest import Digest
from mmhash.errors import InputValueError
from mmhash.fields import field

OPTIONS_CONTEXT = "mmhash 2026-11-22 options v1"

ORIENTATION = "exif_orientation"
"""The option for an image's orientation; no request has a member with this name."""

SGLANG_OPTIONS = (
    "mm_processor_kwargs",
    "images_config",
    "video_config",
    "use_audio_in_video",
    "max_dynamic_patch",
    "min_dynamic_patch",
    "image_max_dynamic_patch",
    "video_max_dynamic_patch",
    "modalities",
)
"""Members of SGLang's requests that change what its processors make of media.

The plugin includes these options in the names of media; a plan for the plugin refuses them.
"""

MAX_DEPTH = 32


class Number(str):
    """A number as the request spells it."""

    __slots__ = ()


def with_options(key: Digest, options: str) -> Digest:
    """Return a key that covers the item and the text of its options, or `key` without options."""
    if not options:
        return key
    made = blake3(key.bytes + field(options.encode()), derive_key_context=OPTIONS_CONTEXT)
    return Digest("blake3", made.digest())


def with_orientation(options: str, orientation: int) -> str:
    """Return the canonical text of the options and an image's EXIF orientation."""
    members = parse_options(options) if options else {}
    return options_text({**members, ORIENTATION: Number(orientation)})


def parse_options(text: bytes | str) -> Any:
    """Return the value of a JSON text; numbers keep their spelling."""
    return json.loads(text, parse_float=Number, parse_int=Number)


def options_text(options: dict[str, Any]) -> str:
    """Return the canonical JSON of the options that are not empty, or "" if all are empty."""
    options = {name: value for name, value in options.items() if not is_empty(value)}
    return _canonical(options, 1) if options else ""


def is_empty(value: Any) -> bool:
    """Return True if a member counts as missing from the request."""
    return value is None or value in ({}, [])


def _canonical(value: Any, depth: int) -> str:
    """Return JSON without blanks, members sorted by code points, numbers as spelled."""
    if depth > MAX_DEPTH:
        raise InputValueError(f"options must have at most {MAX_DEPTH} levels")
    if isinstance(value, dict):
        members = (
            f"{_quoted(name)}:{_canonical(one, depth + 1)}" for name, one in sorted(value.items())
        )
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_canonical(one, depth + 1) for one in value) + "]"
    return str(value) if isinstance(value, Number) else _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
