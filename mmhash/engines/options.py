"""Processing options of a request: a key that covers them as well as the media.

An engine reuses the output of its processor under the caller's hash. If it does not add the options
to that hash in a way that keeps different ones apart, the hash has to differ by them (docs/spec.md,
section 10). The EXIF orientation of an image whose key is that of its pixels is such an option.
"""

import json
from typing import Any

from blake3 import blake3

from mmhash.digest import Digest
from mmhash.errors import InputValueError
from mmhash.fields import field

OPTIONS_CONTEXT = "mmhash 2026-11-22 options v1"

ORIENTATION = "exif_orientation"
"""The option of an image's orientation; no request has a member of this name."""

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

The plugin names media by them too, and a plan for the plugin refuses them.
"""

MAX_DEPTH = 32


class Number(str):
    """A number as it is spelled in the request."""

    __slots__ = ()


def with_options(key: Digest, options: str) -> Digest:
    """Return the key of an item and the canonical text of its options; without any, its own key."""
    if not options:
        return key
    made = blake3(key.bytes + field(options.encode()), derive_key_context=OPTIONS_CONTEXT)
    return Digest("blake3", made.digest())


def with_orientation(options: str, orientation: int) -> str:
    """Return the canonical text of options and of an image's EXIF orientation."""
    if orientation == 1:
        return options
    members = parse_options(options) if options else {}
    return options_text({**members, ORIENTATION: Number(orientation)})


def parse_options(text: bytes | str) -> Any:
    """Return the value of a JSON text, numbers as they are spelled."""
    return json.loads(text, parse_float=Number, parse_int=Number)


def options_text(options: dict[str, Any]) -> str:
    """Return the canonical JSON of those options that are not empty; "" if all are."""
    options = {name: value for name, value in options.items() if not is_empty(value)}
    return _canonical(options, 1) if options else ""


def is_empty(value: Any) -> bool:
    """Return True if a member counts as one that the request does not have."""
    return value is None or value in ({}, [])


def _canonical(value: Any, depth: int) -> str:
    """Return JSON without blanks, members sorted by code points, numbers as they are spelled."""
    if depth > MAX_DEPTH:
        raise InputValueError(f"options have at most {MAX_DEPTH} levels")
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
