"""Canonical CBOR as block keys need it (RFC 8949, 4.2.1)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mmhash.errors import InputTypeError, InputValueError

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY = range(5)
_NULL = b"\xf6"

# A head itself holds a number below 24. From each of these steps on, more bytes follow the head:
# the width of that step.
_STEPS = np.array([24, 1 << 8, 1 << 16, 1 << 32], np.uint64)
_WIDTHS = np.array([0, 1, 2, 4, 8])


class Encoded(bytes):
    """Encoded CBOR, which `dumps` copies as it is."""

    __slots__ = ()


def dumps(value: Any) -> bytes:
    """Return `value` in CBOR: None, a 64-bit int, bytes, text, or a list or tuple of these."""
    match value:
        case None:
            return _NULL
        case Encoded():
            return value
        case bytes():
            return _head(_BYTES, len(value)) + value
        case str():
            try:
                text = value.encode()
            except UnicodeEncodeError:
                raise InputValueError(
                    "a block key can hold only text that UTF-8 can encode"
                ) from None
            return _head(_TEXT, len(text)) + text
        case int() if not isinstance(value, bool):
            return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, ~value)
        case list() | tuple():
            return _head(_ARRAY, len(value)) + b"".join(map(dumps, value))
    raise InputTypeError(f"a block key cannot hold a value of type {type(value).__name__}")


def int_arrays(numbers: Sequence[int], length: int) -> list[Encoded]:
    """Return each full run of `length` numbers as an array. Numbers must be from 0 to 2**64 - 1."""
    whole = len(numbers) - len(numbers) % length
    values = np.array(numbers[:whole], np.uint64)
    steps = np.searchsorted(_STEPS, values, side="right")
    widths = _WIDTHS[steps]
    # A row per number: the head, then the number's bytes, left-aligned. The mask drops the rest.
    rows = np.empty((whole, 9), np.uint8)
    rows[:, 0] = np.where(steps, 23 + steps, values)
    shifts = np.where(steps, 64 - 8 * widths, 0).astype(np.uint64)
    rows[:, 1:] = (values << shifts).astype(">u8").view(np.uint8).reshape(whole, 8)
    encoded = rows[np.arange(9) <= widths[:, None]].tobytes()
    ends = np.cumsum(widths + 1)[length - 1 :: length].tolist()
    head = _head(_ARRAY, length)
    return [Encoded(head + encoded[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes((major << 5 | number,))
    for step, width in enumerate((1, 2, 4, 8), 24):
        if number < 1 << 8 * width:
            return bytes((major << 5 | step,)) + number.to_bytes(width, "big")
    raise InputValueError("a block key cannot hold a number of more than 64 bits")
