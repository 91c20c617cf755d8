"""The functions digest(), key() and keys().

Data on a GPU is hashed there, many items per launch, while the CPU hashes the rest.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import pairwise
from operator import sub
from threading import Lock
from typing import Any, Literal, overload

import numpy as np

from mmhash.algorithms import Algorithm, check_algorithm
from mmhash.cpu import hash_bytes
from mmhash.digest import Digest, blank_digests, fill_digests, unchecked_digest
from mmhash.errors import InputError, InputTypeError
from mmhash.framing import check_tenant, frame, preimage_template
from mmhash.leaves import MAX_DEPTH, Group, Leaves, Options, Plan, hash_view
from mmhash.split import LISTS, Bundle
from mmhash.torch_tensor import DeviceBytes, is_tensor
from mmhash.view import View, read_view, view_of

__all__ = ["MAX_DEPTH", "PendingKeys", "digest", "key", "keys"]

# How many tensors of a list are located together, and launched together if all are on one GPU.
# Smaller chunks start sooner, but the end of each launch leaves part of the GPU idle.
_CHUNK = 64
# Below this number, locating the tensors one by one is faster.
_MIN_CHUNK = 8


def digest(data: Any, *, algorithm: Algorithm = "blake3", threads: int | None = None) -> Digest:
    """Return the digest of the bytes of `data`.

    The bytes are the elements in C order, little-endian; for an image, its pixels.

    Args:
        data: A bytes-like object, numpy array, torch tensor on any device, DLPack array, PIL image,
            or a handle of mmhash.transport.
        algorithm: `"blake3"`, what `b3sum` prints, or `"xxh3"`, for input that you trust.
        threads: The number of threads; by default one below 1 MiB, and all cores above.

    >>> str(digest(b"abc"))
    'blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85'
    >>> digest(np.frombuffer(b"abc", np.uint8)) == digest(b"abc")
    True
    """
    chosen = check_algorithm(algorithm)
    view = read_view(data)
    return unchecked_digest(chosen, hash_view(view, chosen, None, threads, framed=False))


def key(
    item: Any,
    *,
    algorithm: Algorithm = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
) -> Digest:
    """Return the key of one item: its digest framed with its kind, dtype and shape.

    Args:
        item: Anything that `digest()` takes; a list or tuple is one item of several parts.
        algorithm: The algorithm of the digest.
        tenant: 32 secret bytes: keys of different tenants never collide, and cannot be guessed
            without the secret.
        threads: The number of threads, as in `digest()`.

    >>> pixels = np.zeros((2, 3), np.float16)
    >>> key(pixels) == key(pixels.copy())
    True
    >>> key(pixels) == key(pixels.reshape(3, 2))  # the shape counts
    False
    """
    chosen = check_algorithm(algorithm)
    check_tenant(tenant)
    if not isinstance(item, LISTS):
        view = read_view(item)
        return unchecked_digest("blake3", hash_view(view, chosen, tenant, threads))
    (item_key,) = _begin([item], Options(chosen, tenant, threads)).wait()
    return item_key


class PendingKeys:
    """The keys of a list; the keys of items on a GPU may still be in progress.

    `await pending` also returns the keys, and lets the event loop run meanwhile.
    """

    def __init__(self, collect: Callable[[], list[Digest]]) -> None:
        self._collect: Callable[[], list[Digest]] | None = collect
        self._keys: list[Digest] = []
        self._lock = Lock()

    def wait(self) -> list[Digest]:
        """Return the keys in the order of the items. Until then, the items must not change."""
        with self._lock:
            if self._collect is not None:
                self._keys, self._collect = self._collect(), None
            return self._keys

    def __await__(self) -> Generator[Any, None, list[Digest]]:
        return asyncio.to_thread(self.wait).__await__()


@overload
def keys(
    items: Iterable[Any],
    *,
    algorithm: Algorithm = ...,
    tenant: bytes | None = ...,
    threads: int | None = ...,
    wait: Literal[True] = ...,
) -> list[Digest]: ...
@overload
def keys(
    items: Iterable[Any],
    *,
    algorithm: Algorithm = ...,
    tenant: bytes | None = ...,
    threads: int | None = ...,
    wait: Literal[False],
) -> PendingKeys: ...
def keys(
    items: Iterable[Any],
    *,
    algorithm: Algorithm = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
    wait: bool = True,
) -> list[Digest] | PendingKeys:
    """Return the key of each item of a list; error messages name the item's number.

    On a GPU a bundle takes one launch, and a list takes a launch per 64 tensors, on the caller's
    current stream. The items of an iterator are read one by one, because they may share one buffer.
    On a GPU, that costs a launch per item. If each item has its own memory, pass a list.

    Args:
        items: A list or an iterator of what `key()` takes, or the result of `split()`.
        algorithm: The algorithm of the digests.
        tenant: 32 secret bytes, as in `key()`.
        threads: The number of threads for an item, as in `digest()`.
        wait: False returns `PendingKeys` without waiting for a GPU; its `wait()` returns the keys.

    >>> keys([b"abc", b"def"]) == [key(b"abc"), key(b"def")]
    True
    """
    if not isinstance(items, (*LISTS, Iterator)):
        raise InputTypeError(
            f"keys() takes a list of items, not one {type(items).__name__}: use key(), or cut a"
            " bundle with split()"
        )
    pending = _begin(items, Options(check_algorithm(algorithm), tenant, threads), "item {}: ")
    return pending.wait() if wait else pending


def _begin(items: Iterable[Any], options: Options, label: str = "") -> PendingKeys:
    if isinstance(items, Bundle) and (started := _begin_bundle(items, options)):
        return started
    leaves = Leaves(options)
    plans: list[Plan] = []
    if isinstance(items, (list, tuple)):
        for start in range(0, len(items), _CHUNK):
            chunk = items[start : start + _CHUNK]
            added = leaves.add_list(chunk) if len(chunk) >= _MIN_CHUNK else None
            plans += _add_each(chunk, leaves, label, start) if added is None else added
    else:
        if isinstance(items, Iterator):
            items = _one_by_one(items, leaves)
        plans += _add_each(items, leaves, label)
    leaves.start()

    def collect() -> list[Digest]:
        digests = blank_digests("blake3", len(plans))
        known = leaves.collect()
        contents = [
            plan
            if type(plan) is bytes
            else known[plan]
            if type(plan) is int
            else _assemble(plan, known, options)
            for plan in plans
        ]
        fill_digests(digests, contents)
        return digests

    return PendingKeys(collect)


def _add_each(items: Iterable[Any], leaves: Leaves, label: str, start: int = 0) -> list[Plan]:
    """Add each item to `leaves`; return how leaves make up the items, numbered from `start`."""
    plans: list[Plan] = []
    for item in items:
        try:
            plans.append(leaves.add(item))
        except InputError as error:
            raise type(error)(label.format(start + len(plans)) + str(error)) from error
    return plans


def _one_by_one(items: Iterator[Any], leaves: Leaves) -> Iterator[Any]:
    """Yield items that may share one buffer: each is read before the next is requested."""
    for item in items:
        yield item
        leaves.read_one()


def _assemble(plan: Plan, known: dict[int, bytes], options: Options) -> bytes:
    """Return the bytes of an item's key, given the keys of its leaves."""
    if isinstance(plan, bytes):
        return plan
    if isinstance(plan, int):
        return known[plan]
    parts = b"".join(_assemble(part, known, options) for part in plan)
    content = hash_bytes(memoryview(parts), options.algorithm)
    return frame("list", "", (len(plan),), content, tenant=options.tenant).bytes


def _begin_bundle(bundle: Bundle, options: Options) -> PendingKeys | None:
    """Hash the items of a bundle without slicing it; return None if they are not contiguous."""
    bundle.check_length()
    feature, bounds = bundle.feature, bundle.bounds
    if is_tensor(feature):
        contiguous = feature.is_contiguous()
    else:
        contiguous = type(feature) is np.ndarray and feature.flags.c_contiguous
    if not (contiguous and bounds[-1] and all(size == 1 for size in feature.shape[: bundle.dim])):
        return None
    view = view_of(feature)
    if isinstance(view.data, DeviceBytes):
        return _launch_bundle(bundle, view, view.data, options)
    row = len(view.data) // bounds[-1]
    keys_on_host = []
    for start, end in pairwise(bounds):
        shape, data = _item_shape(bundle, view, end - start), view.data[start * row : end * row]
        item_key = hash_view(("tensor", view.dtype, shape, data, b"", None), *options)
        keys_on_host.append(unchecked_digest("blake3", item_key))
    return PendingKeys(lambda: keys_on_host)


def _item_shape(bundle: Bundle, view: View, length: int) -> tuple[int, ...]:
    return (*view.shape[: bundle.dim], length, *view.shape[bundle.dim + 1 :])


def _launch_bundle(bundle: Bundle, view: View, data: DeviceBytes, options: Options) -> PendingKeys:
    """Hash a bundle's items in one launch on their GPU."""
    bounds, count = bundle.bounds, len(bundle)
    row = data.nbytes // bounds[-1]

    def template(length: int) -> tuple[bytes, int]:
        shape = _item_shape(bundle, view, length)
        return preimage_template("tensor", view.dtype, shape, options.algorithm)

    group = Group(data.device, options)
    if isinstance(bounds, range) and row:  # all items have the same size
        size = bounds.step * row
        group.addresses = list(range(data.address, data.address + data.nbytes, size))
        group.lengths = [size] * count
        group.templates = [template(bounds.step)] * count
    else:
        lengths = list(map(sub, bounds[1:], bounds))
        by_length = {length: template(length) for length in set(lengths)}
        group.addresses = [data.address + start * row for start in bounds[:-1]]
        group.lengths = [length * row for length in lengths]
        group.templates = [by_length[length] for length in lengths]
    group.owners = [data] * count
    wait = group.launch()

    def collect() -> list[Digest]:
        digests = blank_digests("blake3", count)
        fill_digests(digests, wait())
        return digests

    return PendingKeys(collect)
