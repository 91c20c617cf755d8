"""The three calls that turn what you have into what it is called: digest, key and keys."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from mmhash.cpu import hash_bytes
from mmhash.digest import Algorithm, Digest, check_algorithm
from mmhash.errors import InputError, InputTypeError, InputValueError
from mmhash.framing import frame
from mmhash.view import bytes_of, view_of

# A list in a list in a list …: deeper than any processor nests, shallower than Python's stack.
MAX_DEPTH = 16


def digest(
    data: Any, *, algorithm: str = "blake3", threads: int | None = None, copy: bool = True
) -> Digest:
    """Hash the bytes of `data`: bytes-like, numpy array, torch tensor, DLPack array or PIL image.

    The bytes are the little-endian elements in C order, of an image its pixels. Threads: one
    below 1 MiB, all above, or as many as `threads` says. `copy=False` refuses an input that
    cannot be read where it lies.
    """
    return hash_bytes(bytes_of(data, copy=copy), check_algorithm(algorithm), threads)


def key(
    item: Any,
    *,
    algorithm: str = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
    copy: bool = True,
) -> Digest:
    """Name one item: its digest framed with its kind, dtype and shape.

    A list or tuple is one item of several parts. `tenant` is 32 secret bytes: keys of two tenants
    never meet, and nobody without the secret can guess one.
    """
    return _key(item, _Options(check_algorithm(algorithm), tenant, threads, copy))


def keys(
    items: Iterable[Any],
    *,
    algorithm: str = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
    copy: bool = True,
) -> list[Digest]:
    """Name each item of a list; an error says which item it was."""
    if not isinstance(items, (list, tuple, Iterator)):
        raise InputTypeError(
            f"keys() takes a list of items, not one {type(items).__name__}: use key(), or cut a"
            " bundle with split()"
        )
    options = _Options(check_algorithm(algorithm), tenant, threads, copy)
    found = []
    for index, item in enumerate(items):
        try:
            found.append(_key(item, options))
        except InputError as error:
            raise type(error)(f"item {index}: {error}") from error
    return found


class _Options(NamedTuple):
    algorithm: Algorithm
    tenant: bytes | None
    threads: int | None
    copy: bool


def _key(item: Any, options: _Options, depth: int = 0) -> Digest:
    algorithm, tenant, threads, copy = options
    if isinstance(item, (list, tuple)):
        if depth == MAX_DEPTH:
            raise InputValueError(f"lists are nested deeper than {MAX_DEPTH}")
        parts = b"".join(_key(part, options, depth + 1).bytes for part in item)
        content = hash_bytes(memoryview(parts), algorithm)
        return frame("list", "", (len(item),), content, tenant=tenant)
    view = view_of(item, copy=copy)
    content = hash_bytes(view.data, algorithm, threads)
    return frame(view.kind, view.dtype, view.shape, content, view.extra, tenant=tenant)
