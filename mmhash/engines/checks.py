"""Argument checks of engine functions. Each returns the value, or raises an error that names it.

Unlike the checks in arguments.py, these also accept numpy numbers and arrays, and tensors.
"""

from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from mmhash.digest import Digest
from mmhash.errors import InputTypeError, InputValueError, LimitError, MMHashError
from mmhash.torch_tensor import is_tensor

MAX_TOKENS = 1 << 24
"""More than the context of any engine."""


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn errors of numpy and torch about unreadable content into errors that name the content."""
    try:
        yield
    except MMHashError:
        raise
    except MemoryError:
        raise LimitError(f"{what} needs more memory than is available") from None
    except RecursionError:
        raise InputValueError(f"{what} is nested too deep") from None
    except (
        BufferError,
        RuntimeError,
        SystemError,  # numpy raises it for text beyond Unicode
        TypeError,
        ValueError,
        np.ma.MAError,
    ) as error:
        raise InputTypeError(f"{what} cannot be read: {str(error)[:200]}") from error


def key(function: str, value: Any) -> Digest:
    """Return a function's argument if it is a key; an error names the function."""
    if not isinstance(value, Digest):
        raise InputTypeError(f"{function}() takes a key, a Digest, not {type(value).__name__}")
    return value


def listed(name: str, values: Any) -> list[Any]:
    """Return the values of a list or tuple, as a list."""
    if not isinstance(values, (list, tuple)):
        raise InputTypeError(f"{name} must be a list, not {type(values).__name__}")
    return list(values)


def unpacked(values: Any) -> Any:
    """Return an array or tensor as a list; return any other value unchanged."""
    return values.tolist() if hasattr(type(values), "tolist") else values


def iterated(name: str, values: Any) -> list[Any]:
    """Return the values of an iterable, as a list."""
    if not isinstance(values, Iterable) or isinstance(
        values, (str, bytes, bytearray, memoryview, dict)
    ):
        raise InputTypeError(f"{name} must be a list, not {type(values).__name__}")
    with readable(name):
        return list(values)


def named(name: str, values: Any) -> dict[Any, Any]:
    """Return a copy of a dict."""
    if not isinstance(values, dict):
        raise InputTypeError(f"{name} must be a dict, not {type(values).__name__}")
    return dict(values)


def tokens(name: str, values: Any) -> "list[int] | np.ndarray[Any, Any]":
    """Return token ids: a list of ints, or an integer array of one or two dimensions.

    The range of the numbers is not checked.
    """
    if not isinstance(values, list) and is_tensor(values):
        with readable(name):
            values = values.detach().cpu().numpy()
    elif isinstance(values, array) and values.typecode in "bBhHiIlLqQ":
        values = np.array(values)
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "iu" or values.ndim not in {1, 2}:
            raise InputTypeError(
                f"{name} must be a row of ints, not {values.dtype} of {values.ndim} dimensions"
            )
        return values
    if not isinstance(values, (list, tuple, range)):
        raise InputTypeError(f"{name} must be a list of ints, not {type(values).__name__}")
    found = list(values)
    kinds = set(map(type, found)) - {int}
    for kind in kinds:
        if kind is bool or not issubclass(kind, (int, np.integer)):
            raise InputTypeError(
                f"{name} must be a list of ints: every entry must be an int, not {kind.__name__}"
            )
    return list(map(int, found)) if kinds else found


def token_list(name: str, values: Any) -> list[int]:
    """Return a list of non-negative 64-bit ints."""
    return token_array(name, values).tolist()


def token_array(name: str, values: Any) -> "array[int]":
    """Return an array of non-negative 64-bit ints. Such an array is returned as it is."""
    if isinstance(values, array) and values.typecode == "Q":
        return values
    found = tokens(name, values)
    if isinstance(found, np.ndarray):
        if found.ndim != 1:
            raise InputTypeError(
                f"{name} must hold ints, not lists: it has {found.ndim} dimensions"
            )
        found = found.tolist()
    return packed(name, found)


def packed(name: str, ids: list[int]) -> "array[int]":
    """Return ints as an array. Raise unless they fit into 64 bits and are not negative."""
    try:
        return array("Q", ids)
    except OverflowError:
        raise InputValueError(f"{name} must hold numbers from 0 to 2**64 - 1") from None


def pairs(name: str, values: Any) -> list[int]:
    """Return the numbers in a list of pairs, one after another."""
    rows = [listed(f"an entry of {name}", row) for row in listed(name, values)]
    if any(len(row) != 2 for row in rows):
        raise InputTypeError(f"{name} must be whole numbers, or pairs of them")
    flat = tokens(name, list(chain.from_iterable(rows)))
    return flat if isinstance(flat, list) else flat.tolist()
