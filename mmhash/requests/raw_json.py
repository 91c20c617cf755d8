"""A request's JSON: parsed for reading, and opened level by level for writing.

Writing changes only the edited members. All other bytes stay: numbers keep their spelling, and
strings their escapes.
"""

import json
from typing import Any

import numpy as np
from msgspec import MsgspecError, Raw
from msgspec.json import Decoder, Encoder

from mmhash.errors import InputValueError
from mmhash.json_pointer import Path, pointer_of

PARSE_ERRORS = (MsgspecError, UnicodeDecodeError, RecursionError)
"""The parser's errors for text that is not JSON, is not UTF-8, or is nested too deeply."""


class RequestError(InputValueError):
    """A request cannot be read. The error has the reason, and the place as a JSON pointer."""

    def __init__(self, reason: str, *path: str | int) -> None:
        self.reason = reason
        self.pointer = pointer_of(path)
        super().__init__(f"{self.pointer} of a request {reason}" if path else f"a request {reason}")


# The length in bytes above which numpy counts faster.
_LONG = 4096

_EXPECTED = "a JSON object with messages, prompt or input"

# A number too large for a float does not make a request unreadable.
_DECODER = Decoder(float_hook=float)
_OBJECT = Decoder(dict[str, Raw])
_LIST = Decoder(list[Raw])
_ENCODER = Encoder()


def parse(text: bytes) -> dict[str, Any]:
    """Parse a text that is an object.

    Raise if an object in it has two members with the same name.
    """
    if not text:
        raise RequestError(f"is empty, not {_EXPECTED}")
    try:
        parsed = _DECODER.decode(text)
        if not isinstance(parsed, dict):
            raise RequestError(f"is {kind_of(parsed)}, not {_EXPECTED}")
        if may_repeat_members(text, _ENCODER.encode(parsed)):
            _refuse_repeated_members(text)
    except (*PARSE_ERRORS, OverflowError) as error:
        damage = _damage_of(error)
        raise RequestError(f"is not a JSON object of UTF-8 text: {damage}") from error
    return parsed


_KINDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "a boolean",
    type(None): "null",
}


def kind_of(value: Any) -> str:
    """Return the kind of a JSON value, in words."""
    return _KINDS.get(type(value), "a number")


def _damage_of(error: Exception) -> str:
    """Return why a text cannot be parsed, without quoting the text."""
    if isinstance(error, MsgspecError):
        in_quotes = "the name of a member must be in double quotes"
        return str(error)[:100].replace("object keys must be strings", in_quotes)
    return getattr(error, "reason", "it is nested too deep")


def may_repeat_members(text: bytes, encoded: bytes) -> bool:
    """Return True if an object in a text may have two members with the same name.

    The parser keeps only the last of such members, so the encoded value has fewer quotes than the
    text. An escaped quote counts in both, unless the text spells the quote by its code point.
    """
    return _count_quotes(encoded) != _count_quotes(text) or b"\\u0022" in text


def _count_quotes(text: bytes) -> int:
    # For a long text this is faster than bytes.count, and releases the GIL.
    if len(text) < _LONG:
        return text.count(b'"')
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord('"')))


def _refuse_repeated_members(text: bytes) -> None:
    json.loads(text, object_pairs_hook=_refuse_repeated, parse_int=float, parse_float=float)


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise RequestError(f"has two members named {name[:100]!r} in one object")
        seen.add(name)


def open_object(text: bytes | Raw) -> dict[str, Any]:
    """Return the members of an object as raw JSON."""
    return dict(_OBJECT.decode(text))


def open_at(members: dict[str, Any], path: Path) -> Any:
    """Return the object or list at a path, and open each level on the way in place."""
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
    """Write an opened value as JSON, with its raw parts byte for byte."""
    return _ENCODER.encode(opened)
