"""JSON of which only the levels that matter are opened: all else stays the bytes that came.

So numbers keep their spelling, strings their escapes, and megabytes of base64 are not copied: a
level is a dict or list of views of the body, and is written as it was read.
"""

from codecs import getincrementaldecoder
from typing import Any

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder, Encoder

from mmhash_service.api.problems import Problem
from mmhash_service.bodies.parsing import refuse_many_values

Object = dict[str, Any]
"""An object of which each member is still raw, or was opened."""

_OBJECT = Decoder(dict[str, Raw])
_LIST = Decoder(list[Raw])
_TEXT = Decoder(str)
_ENCODER = Encoder()

# How much is checked to be UTF-8 at a time: 1 ms, after which the event loop may have the GIL.
_STEP = 1 << 20


def open_body(text: bytes) -> Object:
    """The object that a body is, all of it checked."""
    refuse_many_values(text)
    try:
        _check_utf8(text)
        return dict(_OBJECT.decode(text))
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("invalid-json") from error


def open_object(raw: Raw | None) -> Object | None:
    """The object that `raw` is; of two members of one name the last, as the engines read it."""
    try:
        return None if raw is None else dict(_OBJECT.decode(raw))
    except ValidationError:
        return None


def open_list(raw: Raw | None) -> list[Any] | None:
    """The list that `raw` is, or None: it is something else."""
    try:
        return None if raw is None else list(_LIST.decode(raw))
    except ValidationError:
        return None


def open_text(raw: Raw | None) -> str | None:
    """The text that `raw` is, or None: it is something else."""
    try:
        return None if raw is None else _TEXT.decode(raw)
    except ValidationError:
        return None


def close(opened: Any) -> Raw:
    """What was opened, as raw JSON again."""
    return Raw(_ENCODER.encode(opened))


def write(body: Object) -> bytes:
    """The body as JSON: what was not opened is there as it came."""
    return _ENCODER.encode(body)


def _check_utf8(text: bytes) -> None:
    # What stays raw is not looked at again, and must not make an answer that is no JSON.
    if text.isascii():
        return
    decoder = getincrementaldecoder("utf-8")()
    for at in range(0, len(text), _STEP):
        decoder.decode(text[at : at + _STEP])
    decoder.decode(b"", final=True)
