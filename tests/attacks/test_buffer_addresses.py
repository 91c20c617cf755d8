"""Buffers of addresses by mistake: keys that differ with every run.

Pointers are refused by the buffer's format, and arrays of objects by their dtype.
"""

import array
import ctypes
import sys
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash import InputTypeError


class Pointers(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int), ("at", ctypes.c_void_p))


class Callback(ctypes.Structure):
    _fields_ = (("call", ctypes.CFUNCTYPE(None)),)


class Chain(ctypes.Structure):
    pass


Chain._fields_ = (("next", ctypes.POINTER(Chain)),)


class Plain(ctypes.Structure):
    """Names that look like codes of addresses."""

    _fields_ = (("POINTERS_XYZ", ctypes.c_int), ("O", ctypes.c_double), ("bits", ctypes.c_int, 3))


class Big(ctypes.BigEndianStructure):
    _fields_ = (("P", ctypes.c_uint32), ("half", ctypes.c_uint16 * 2))


ADDRESSES = [
    (ctypes.c_void_p * 3)(),
    (ctypes.c_char_p * 3)(b"a", b"b"),
    (ctypes.c_wchar_p * 3)("a"),
    (ctypes.py_object * 2)("a", "b"),
    (ctypes.POINTER(ctypes.c_int) * 2)(),
    ((ctypes.c_void_p * 2) * 2)(),
    ctypes.c_void_p(5),
    ctypes.c_char_p(b"a"),
    ctypes.py_object("a"),
    ctypes.pointer(ctypes.c_int(4)),
    ctypes.CFUNCTYPE(None)(lambda: None),
    Pointers(),
    (Pointers * 2)(),
    Callback(),
    Chain(),
]


@pytest.mark.parametrize("item", ADDRESSES, ids=lambda item: type(item).__name__)
def test_addresses_are_refused(item: Any) -> None:
    views = [item, memoryview(item)]
    if memoryview(item).ndim == 1:
        views.append(memoryview(item)[1:])
    for view in views:
        for call in (mmhash.key, mmhash.digest, mmhash.Hasher().update):
            with pytest.raises(InputTypeError, match="addresses"):
                call(view)


@pytest.mark.parametrize(
    "item", [Plain(), (Plain * 3)(), Big(), (ctypes.c_bool * 3)(True), (ctypes.c_wchar * 3)(*"abc"),
             ctypes.c_int(5), (ctypes.c_longdouble * 2)(), ((ctypes.c_int * 2) * 2)()],
    ids=lambda item: type(item).__name__,
)  # fmt: skip
def test_what_holds_no_address_is_its_bytes(item: Any) -> None:
    assert mmhash.key(item) == mmhash.key(bytes(item))


OBJECTS = np.array([object(), None])
FIELDS = np.zeros((3, 4), [("O", "u1"), ("P", "f4"), ("Zf", "c8")])


def test_formats_of_memoryviews() -> None:
    for view in (memoryview(OBJECTS), memoryview(np.zeros(2, [("a", "O"), ("b", "i4")]))):
        with pytest.raises(InputTypeError, match="object pointers"):
            mmhash.key(view)
    for values in (FIELDS, FIELDS[:, ::2], FIELDS["Zf"], np.ones(3, "?"), np.ones((2, 2), "f2").T):
        assert mmhash.key(memoryview(values)) == mmhash.key(values.tobytes())
    text = "u" if sys.version_info < (3, 13) else "w"
    for code in "bBhHiIlLqQfd" + text:
        held = array.array(code, "ab" if code == text else [1, 2])
        assert mmhash.key(held) == mmhash.key(held.tobytes())
