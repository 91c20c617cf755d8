"""Copies that no machine has the memory for, refused before they are made.

An expanded array of 8 TiB may hold one number. Its copy fails where the kernel refuses to allocate
so much; with vm.overcommit_memory=1, as on Kubernetes' nodes, the copy begins, and the kernel kills
the process.
"""

import os
import sys
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from mmhash.errors import InputValueError, LimitError

if TYPE_CHECKING:
    import numpy as np


def check_copy(what: str, nbytes: int) -> None:
    """Refuse a copy that is larger than the machine's memory."""
    if nbytes > _machine_bytes():
        raise LimitError(f"{what} takes more memory than there is: a copy of {nbytes} bytes")


def need_copy(what: str, copy: bool, nbytes: int = 0) -> None:
    """Raise an error if an input that cannot be read in place must not, or cannot, be copied."""
    if not copy:
        raise InputValueError(f"{what} cannot be read in place, and copy=False forbids a copy")
    check_copy(what, nbytes)


def in_c_order(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return an array of at least one dimension in C order, copied if it is not."""
    import numpy as np  # noqa: PLC0415  (imported already; images are read without)

    if not values.flags.c_contiguous:
        check_copy("an array that is not C-contiguous", values.nbytes)
    return np.ascontiguousarray(values)


@cache
def _machine_bytes() -> int:
    if not hasattr(os, "sysconf"):  # on Windows, which does not overcommit
        return sys.maxsize
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def array_as_list(name: str, values: Any, most: int) -> Any:
    """Return the numbers of an array or tensor as a list; any other value as it is."""
    if not hasattr(type(values), "tolist"):
        return values
    if prod(getattr(values, "shape", ())) > most:
        raise InputValueError(f"{name} holds more than {most} numbers")
    return values.tolist()
