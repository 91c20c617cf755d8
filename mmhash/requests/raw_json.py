"""JSON opened only at the levels that matter: everything else stays the bytes of the request.

So numbers keep their spelling and strings their escapes: a level is a dict or list of views of the
text, and is written as it was read.
"""

from codecs import getincrementaldecoder
from typing import Any

from msgspec import MsgspecError, Raw
from msgspec.json import Decoder, Encoder

from mmhash.errors import InputValueError

Object = dict[str, Any]
"""An object whose members are raw, or opened."""

PARSE_ERRORS = (MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of the parser for a text that is not JSON, is not UTF-8, or is nested too deep."""

# The bytes checked to be UTF-8 at a time: other threads may get the GIL between two steps.
_STEP = 1 << 20


class RequestError(InputValueError):
    """A request that cannot be read: what is wrong, and where, as a JSON pointer."""

    def __init__(self, reason: str, *place: str | int) -> None:
        self.reason = reason
        self.pointer = "".join(f"/{_escaped(str(step))}" for step in place)
        super().__init__(f"a request's {self.pointer} {reason}" if place else f"a request {reason}")


class DuplicateMemberError(RequestError):
    """An object has two members of one name: another parser may read the other one."""


class _Name:
    """The name of a member; two of one text are different keys."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


_OBJECT = Decoder(dict[_Name, Raw], dec_hook=lambda _, text: _Name(text))
_LIST = Decoder(list[Raw])
_TEXT = Decoder(str)
_ENCODER = Encoder()


def open_body(text: bytes) -> Object:
    """Return the object that a text is, all of it checked."""
    try:
        _check_utf8(text)
        return _members(text, ())
    except PARSE_ERRORS as error:
        raise RequestError("is not a JSON object of UTF-8 text") from error


def open_object(raw: Any, *place: str | int) -> Object | None:
    """Return the object that a raw value is, or None; `place` is named in errors."""
    return _members(raw, place) if _begins(raw, b"{") else None


def open_list(raw: Any) -> list[Any] | None:
    """Return the list that a raw value is, or None if it is something else."""
    return _LIST.decode(raw) if _begins(raw, b"[") else None


def open_text(raw: Any) -> str | None:
    """Return the text that a raw value is, or None if it is something else."""
    return _TEXT.decode(raw) if _begins(raw, b'"') else None


def encode(opened: Any) -> bytes:
    """Return an opened value as JSON, its raw parts byte for byte."""
    return _ENCODER.encode(opened)


def _members(raw: Any, place: tuple[str | int, ...]) -> Object:
    pairs = _OBJECT.decode(raw)
    members = {name.text: value for name, value in pairs.items()}
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name in pairs:
            if name.text in seen:
                raise DuplicateMemberError("has two members of this name", *place, name.text)
            seen.add(name.text)
    return members


def _begins(raw: Any, sign: bytes) -> bool:
    return isinstance(raw, Raw) and bytes(memoryview(raw)[:1]) == sign


def _check_utf8(text: bytes) -> None:
    # Raw members are not parsed again, and must not make the response invalid JSON.
    if text.isascii():
        return
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(text), _STEP):
        decoder.decode(text[start : start + _STEP])
    decoder.decode(b"", final=True)
