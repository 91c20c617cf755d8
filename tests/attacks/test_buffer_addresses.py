"""Buffers that hold addresses, hashed by mistake: the key would differ with every run.

The library refuses them by their format.
"""

import array
import ctypes
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash import InputTypeError


class Pointers(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int), ("at", ctypes.c_void_p))


class Chain(ctypes.Structure):
    pass


Chain._fields_ = (("next", ctypes.POINTER(Chain)),)


class Plain(ctypes.Structure):
    """Names that look like codes of addresses."""

    _fields_ = (("POINTERS_XYZ", ctypes.c_int), ("O", ctypes.c_double), ("bits", ctypes.c_int, 3))


ADDRESSES = [
    (ctypes.c_char_p * 3)(b"a", b"b"),
    (ctypes.py_object * 2)("a", "b"),
    ((ctypes.c_void_p * 2) * 2)(),
    ctypes.c_wchar_p("a"),
    ctypes.pointer(ctypes.c_int(4)),
    ctypes.CFUNCTYPE(None)(lambda: None),
    (Pointers * 2)(),
    Chain(),
    np.zeros(2, [("a", "O"), ("b", "i4")]),
]


@pytest.mark.parametrize("item", ADDRESSES, ids=lambda item: type(item).__name__)
def test_addresses_are_refused(item: Any) -> None:
    views = [memoryview(item)] if isinstance(item, np.ndarray) else [item, memoryview(item)]
    for view in views:
        for call in (mmhash.key, mmhash.digest, mmhash.Hasher().update):
            with pytest.raises(InputTypeError, match="addresses"):
                call(view)


FIELDS = np.zeros((3, 4), [("O", "u1"), ("P", "f4"), ("Zf", "c8")])


@pytest.mark.parametrize(
    "item",
    [(Plain * 3)(), (ctypes.c_wchar * 3)(*"abc"), (ctypes.c_longdouble * 2)(), array.array("q", [1]),
     memoryview(FIELDS), memoryview(FIELDS[:, ::2]), memoryview(np.ones((2, 2), "f2").T)],
    ids=lambda item: type(item).__name__,
)  # fmt: skip
def test_a_container_without_addresses_is_hashed_as_bytes(item: Any) -> None:
    assert mmhash.key(item) == mmhash.key(memoryview(item).tobytes())
