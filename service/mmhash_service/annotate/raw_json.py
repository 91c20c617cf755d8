"""JSON opened only at the levels that matter: everything else stays the bytes of the request.

So numbers keep their spelling, strings their escapes, and megabytes of base64 are not copied: a
level is a dict or list of views of the body, and is written as it was read.
"""

from codecs import getincrementaldecoder
from typing import Any

from msgspec import Raw, ValidationError
from msgspec.json import Decoder, Encoder

from mmhash_service.api.json_limits import PARSE_ERRORS
from mmhash_service.api.problems import InvalidPart, Problem
from mmhash_service.bodies.parsing import refuse_many_values

Object = dict[str, Any]
"""An object whose members are raw, or opened."""

_OBJECT = Decoder(dict[str, Raw])
_LIST = Decoder(list[Raw])
_TEXT = Decoder(str)
_ENCODER = Encoder()

# The bytes checked to be UTF-8 at a time: 1 ms, after which the event loop may get the GIL.
_STEP = 1 << 20


def open_body(text: bytes) -> Object:
    """Return the object that a body is, all of it checked."""
    refuse_many_values(text)
    try:
        _check_utf8(text)
        return dict(_OBJECT.decode(text))
    except PARSE_ERRORS as error:
        part = InvalidPart("is not a JSON object of UTF-8 text", pointer="")
        raise Problem("invalid-json", [part]) from error


def open_object(raw: Raw | None) -> Object | None:
    """Return the object that `raw` is, or None. Of two members of one name the last counts."""
    try:
        return None if raw is None else dict(_OBJECT.decode(raw))
    except ValidationError:
        return None


def open_list(raw: Raw | None) -> list[Any] | None:
    """Return the list that `raw` is, or None if it is something else."""
    try:
        return None if raw is None else list(_LIST.decode(raw))
    except ValidationError:
        return None


def open_text(raw: Raw | None) -> str | None:
    """Return the text that `raw` is, or None if it is something else."""
    try:
        return None if raw is None else _TEXT.decode(raw)
    except ValidationError:
        return None


def close(opened: Any) -> Raw:
    """Return an opened value as raw JSON again."""
    return Raw(_ENCODER.encode(opened))


def write(body: Object) -> bytes:
    """Return the body as JSON, its raw members byte for byte."""
    return _ENCODER.encode(body)


def _check_utf8(text: bytes) -> None:
    # Raw members are not parsed again, and must not make the response invalid JSON.
    if text.isascii():
        return
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(text), _STEP):
        decoder.decode(text[start : start + _STEP])
    decoder.decode(b"", final=True)
