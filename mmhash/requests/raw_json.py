"""A request's JSON: parsed to be read, and opened level by level to be written.

What is written again keeps its bytes but for the members that change: numbers keep their spelling,
strings their escapes.
"""

import json
from typing import Any

import numpy as np
from msgspec import MsgspecError, Raw
from msgspec.json import Decoder, Encoder

from mmhash.errors import InputValueError

PARSE_ERRORS = (MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of the parser for a text that is not JSON, is not UTF-8, or is nested too deep."""

Path = tuple[str | int, ...]
"""The place of a value in a request: the names of members, and the indexes in lists."""


class RequestError(InputValueError):
    """A request that cannot be read: what is wrong, and where, as a JSON pointer."""

    def __init__(self, reason: str, *path: str | int) -> None:
        self.reason = reason
        self.pointer = "".join(f"/{_escaped(str(step))}" for step in path)
        super().__init__(f"{self.pointer} of a request {reason}" if path else f"a request {reason}")


class DuplicateMemberError(RequestError):
    """An object has two members of one name: another parser may read the other one."""


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


# The bytes of a text from which on numpy counts faster.
_LONG = 4096

# A number that is too large for a float does not make a request unreadable.
_DECODER = Decoder(float_hook=float)
_OBJECT = Decoder(dict[str, Raw])
_LIST = Decoder(list[Raw])
_ENCODER = Encoder()


def parse(text: bytes) -> dict[str, Any]:
    """Return the object that a text is; two members of one name, at any level, are an error."""
    try:
        parsed = _DECODER.decode(text)
        if not isinstance(parsed, dict):
            raise RequestError("is not a JSON object")
        if _may_repeat_members(text, parsed):
            _refuse_repeated_members(text)
    except (*PARSE_ERRORS, OverflowError) as error:
        raise RequestError("is not a JSON object of UTF-8 text") from error
    return parsed


def _may_repeat_members(text: bytes, parsed: dict[str, Any]) -> bool:
    """Return True if an object may have two members of one name: the parser keeps the last.

    Then quotes are missing from what it made. An escaped quote counts in both texts, unless it is
    spelled by its number.
    """
    return _count_quotes(_ENCODER.encode(parsed)) != _count_quotes(text) or b"\\u0022" in text


def _count_quotes(text: bytes) -> int:
    # Of a long text, faster than count() of bytes, and without the GIL.
    if len(text) < _LONG:
        return text.count(b'"')
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord('"')))


def _refuse_repeated_members(text: bytes) -> None:
    json.loads(text, object_pairs_hook=_refuse_repeated, parse_int=float, parse_float=float)


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise DuplicateMemberError(f"has two members of the name {name[:100]!r} in one object")
        seen.add(name)


def open_object(text: bytes | Raw) -> dict[str, Any]:
    """Return the members of an object, raw."""
    return dict(_OBJECT.decode(text))


def open_at(members: dict[str, Any], path: Path) -> Any:
    """Return the object or list at a path; what is on the way is opened in place."""
    holder: Any = members
    for step in path:
        inner = holder[step]
        if isinstance(inner, Raw):
            inner = (
                _LIST.decode(inner)
                if bytes(memoryview(inner)[:1]) == b"["
                else _OBJECT.decode(inner)
            )
            holder[step] = inner
        holder = inner
    return holder


def encode(opened: Any) -> bytes:
    """Return an opened value as JSON, its raw parts byte for byte."""
    return _ENCODER.encode(opened)
