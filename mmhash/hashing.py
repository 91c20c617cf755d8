"""The functions digest(), key() and keys().

Data on a GPU is hashed there, many items in one launch, while the CPU hashes the rest.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from operator import sub
from typing import Any, Literal, overload

import numpy as np

from mmhash import cuda
from mmhash.algorithms import Algorithm, check_algorithm
from mmhash.cpu import hash_bytes, hash_raw
from mmhash.digest import Digest, blank_digests, fill_digests, unchecked_digest
from mmhash.errors import DeviceError, InputError, InputTypeError, InputValueError
from mmhash.framing import frame, frame_raw, preimage_template
from mmhash.leaves import SHORT, Leaves, Options, check_copy_to_host, host_key, launch_keys
from mmhash.split import LISTS, Bundle
from mmhash.torch_tensor import (
    HOST,
    DeviceBytes,
    Located,
    copy_located,
    is_tensor,
    locate,
    locate_list,
)
from mmhash.view import View, short_view, view_of

# Of nested lists: deeper than any processor nests, shallower than Python's stack.
MAX_DEPTH = 16

# Tensors of a list that are located together, and launched together if they are on one GPU. On an
# H200, 64 of 1.5 MiB take 205 µs, and 220 in chunks of 32; 512 take 1.1 ms, and 1.45. Smaller
# chunks start sooner, but each launch ends with some 30 µs in which not all of the GPU has work.
_CHUNK = 64
# Fewer are located one by one: locate_list() of one takes 3.1 µs, and locate() 1.0.
_MIN_CHUNK = 8


def digest(
    data: Any, *, algorithm: str = "blake3", threads: int | None = None, copy: bool = True
) -> Digest:
    """Return the digest of the bytes of `data`.

    The bytes are the elements in C order, little-endian; for an image, its pixels.

    Args:
        data: A bytes-like object, numpy array, torch tensor on any device, DLPack array, PIL image,
            or a handle of mmhash.transport.
        algorithm: `"blake3"`, what `b3sum` prints, or `"xxh3"`, for input that you trust.
        threads: The number of threads; by default one below 1 MiB, and all cores above.
        copy: False refuses an input that cannot be read in place.

    >>> str(digest(b"abc"))
    'blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85'
    >>> digest(np.frombuffer(b"abc", np.uint8)) == digest(b"abc")
    True
    """
    chosen = check_algorithm(algorithm)
    if located := locate(data):
        device, segment, *_ = located
        if device == HOST:
            return unchecked_digest(chosen, hash_raw(copy_located(segment), chosen, threads))
        try:
            return _digest_on_gpu(device, segment, chosen)
        except DeviceError:
            pass  # the tensor is copied to the host below
    elif _may_have_digest(data.__class__) and (attached := precomputed_digest(data, chosen)):
        return attached
    view = view_of(data, copy=copy)
    content = view.data
    if isinstance(content, DeviceBytes):
        try:
            result = _digest_on_gpu(content.device, (content.address, content.nbytes), chosen)
        except DeviceError as error:
            check_copy_to_host(content.device, error, copy)
            result = hash_bytes(content.to_host(), chosen, threads)
    else:
        result = hash_bytes(content, chosen, threads)
    if view.check_lease is not None:
        view.check_lease()
    return result


def _digest_on_gpu(device: int, segment: tuple[int, int], algorithm: Algorithm) -> Digest:
    (raw,) = cuda.hash_segments(device, [segment], algorithm).wait()
    return unchecked_digest(algorithm, raw)


def key(
    item: Any,
    *,
    algorithm: str = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
    copy: bool = True,
) -> Digest:
    """Return the key of one item: its digest framed with its kind, dtype and shape.

    Args:
        item: Anything that `digest()` takes; a list or tuple is one item of several parts.
        algorithm: The algorithm of the digest.
        tenant: 32 secret bytes: keys of different tenants never collide, and cannot be guessed
            without the secret.
        threads: The number of threads, as in `digest()`.
        copy: False refuses an input that cannot be read in place.

    >>> pixels = np.zeros((2, 3), np.float16)
    >>> key(pixels) == key(pixels.copy())
    True
    >>> key(pixels) == key(pixels.reshape(3, 2))  # the shape counts
    False
    """
    chosen = check_algorithm(algorithm)
    if located := locate(item):
        device, segment, dtype, shape = located
        if device == HOST:
            return _short_key(located, chosen, tenant, threads)
        template = preimage_template("tensor", dtype, shape, chosen)
        try:
            (key_bytes,) = launch_keys(device, [segment], [template], chosen, tenant).wait()
            return unchecked_digest("blake3", key_bytes)
        except DeviceError:
            pass  # _begin() copies the tensor to the host
    elif _is_leaf(item.__class__):
        view = view_of(item, copy=copy)
        if isinstance(view.data, memoryview):
            return host_key(view, view.data, chosen, tenant, threads)
    (item_key,) = _begin([item], Options(chosen, tenant, threads, copy)).wait()
    return item_key


class PendingKeys:
    """The keys of a list; those of items on a GPU may still be computed."""

    def __init__(self, collect: Callable[[], list[Digest]]) -> None:
        self._collect: Callable[[], list[Digest]] | None = collect
        self._keys: list[Digest] = []

    def wait(self) -> list[Digest]:
        """Return the keys in the order of the items, which must not change until then."""
        if self._collect is not None:
            self._keys, self._collect = self._collect(), None
        return self._keys


@overload
def keys(
    items: Iterable[Any],
    *,
    algorithm: str = ...,
    tenant: bytes | None = ...,
    threads: int | None = ...,
    copy: bool = ...,
    wait: Literal[True] = ...,
) -> list[Digest]: ...
@overload
def keys(
    items: Iterable[Any],
    *,
    algorithm: str = ...,
    tenant: bytes | None = ...,
    threads: int | None = ...,
    copy: bool = ...,
    wait: Literal[False],
) -> PendingKeys: ...
def keys(
    items: Iterable[Any],
    *,
    algorithm: str = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
    copy: bool = True,
    wait: bool = True,
) -> list[Digest] | PendingKeys:
    """Return the key of each item of a list; an error message names the item's number.

    On a GPU a bundle takes one launch, and a list one for each 64 tensors, on the caller's current
    stream. The items of an iterator are read one by one, because it may fill one buffer again for
    each: that takes about as long for short items on the host, and a launch for each item on a GPU.
    If each has its own memory, pass a list.

    Args:
        items: A list or an iterator of what `key()` takes, or the result of `split()`.
        algorithm: The algorithm of the digests.
        tenant: 32 secret bytes, as in `key()`.
        threads: The number of threads for an item, as in `digest()`.
        copy: False refuses an input that cannot be read in place.
        wait: False returns `PendingKeys` without waiting for a GPU; its `wait()` returns the keys.

    >>> keys([b"abc", b"def"]) == [key(b"abc"), key(b"def")]
    True
    """
    if not isinstance(items, (*LISTS, Iterator)):
        raise InputTypeError(
            f"keys() takes a list of items, not one {type(items).__name__}: use key(), or cut a"
            " bundle with split()"
        )
    pending = _begin(items, Options(check_algorithm(algorithm), tenant, threads, copy), "item {}: ")
    return pending.wait() if wait else pending


# The plans of a list's parts, the number of a leaf, or the bytes of a key that is known already.
_Plan = list["_Plan"] | int | bytes


def _begin(items: Iterable[Any], options: Options, label: str = "") -> PendingKeys:
    if isinstance(items, Bundle) and (started := _begin_bundle(items, options)):
        return started
    leaves = Leaves(options)
    plans: list[_Plan] = []
    if isinstance(items, (list, tuple)):
        for start in range(0, len(items), _CHUNK):
            chunk = items[start : start + _CHUNK]
            if len(chunk) >= _MIN_CHUNK and (located := locate_list(chunk)):
                plans += leaves.add_list(located, chunk)
            else:
                plans += _plan_each(chunk, leaves, options, label, start)
    else:
        if isinstance(items, Iterator):
            items = _one_by_one(items, leaves)
        plans += _plan_each(items, leaves, options, label)
    keys_of_leaves = leaves.start()

    def collect() -> list[Digest]:
        digests = blank_digests("blake3", len(plans))
        known = keys_of_leaves()  # waits for the GPUs
        contents = []
        for plan in plans:  # most need no call of _assemble(): 64 leaves in 5 instead of 25 µs
            if type(plan) is bytes:
                contents.append(plan)
            elif type(plan) is int:
                contents.append(known[plan])
            else:
                contents.append(_assemble(plan, known, options))
        fill_digests(digests, contents)
        return digests

    return PendingKeys(collect)


def _plan_each(
    items: Iterable[Any], leaves: Leaves, options: Options, label: str, start: int = 0
) -> list[_Plan]:
    """Add each item to `leaves`; return how they make it up. `start` is the first one's number."""
    plans: list[_Plan] = []
    for index, item in enumerate(items, start):
        # Bytes and arrays first: each takes 0.3 µs less, and a tensor no more.
        if (short := short_view(item)) and len(short[3]) <= SHORT:
            plans.append(leaves.key_of_short(*short))
            continue
        if located := locate(item):
            plans.append(leaves.add_located(located, item))
            continue
        try:
            plans.append(_plan(item, leaves, options))
        except InputError as error:
            raise type(error)(label.format(index) + str(error)) from error
    return plans


def _one_by_one(items: Iterator[Any], leaves: Leaves) -> Iterator[Any]:
    """Yield items that may share one buffer: each is read before the next one is asked for."""
    for item in items:
        yield item
        leaves.read_one()


def _plan(item: Any, leaves: "Leaves", options: Options, depth: int = 0) -> _Plan:
    """Add the views of `item` and its parts to `leaves`; return how they make up the item."""
    if (short := short_view(item)) and len(short[3]) <= SHORT:
        return leaves.key_of_short(*short)
    if not _is_leaf(item.__class__):
        if isinstance(item, LISTS):
            if depth == MAX_DEPTH:
                raise InputValueError(f"lists are nested deeper than {MAX_DEPTH}")
            return [
                leaves.add_located(located, part)
                if (located := locate(part))
                else _plan(part, leaves, options, depth + 1)
                for part in item
            ]
        if content := precomputed_digest(item, options.algorithm):
            return frame(item.kind, item.dtype, item.shape, content, tenant=options.tenant).bytes
    return leaves.add(view_of(item, copy=options.copy))


@lru_cache(maxsize=256)
def _is_leaf(kind: Any) -> bool:
    """Return True for items that are neither lists nor may have a digest: 0.1 µs, cached."""
    return not issubclass(kind, LISTS) and not _may_have_digest(kind)


@lru_cache(maxsize=256)
def _may_have_digest(kind: type) -> bool:
    """Return True for handles, to which the producer may have attached a digest."""
    return hasattr(kind, "__mmhash_digest__")


def precomputed_digest(handle: Any, algorithm: Algorithm) -> Digest | None:
    """Return the digest that the producer attached to a handle, if there is one."""
    attached: Digest | None = handle.__mmhash_digest__(algorithm)
    return attached


def _assemble(plan: _Plan, leaf_keys: dict[int, bytes], options: Options) -> bytes:
    if isinstance(plan, bytes):
        return plan
    if isinstance(plan, int):
        return leaf_keys[plan]
    parts = b"".join(_assemble(part, leaf_keys, options) for part in plan)
    content = hash_bytes(memoryview(parts), options.algorithm)
    return frame("list", "", (len(plan),), content, tenant=options.tenant).bytes


def _begin_bundle(bundle: Bundle, options: Options) -> PendingKeys | None:
    """Hash a bundle's items without a slice for each; None if they are not contiguous."""
    bundle.check_length()
    feature, bounds, dim = bundle.feature, bundle.bounds, bundle.dim
    located = locate(feature)
    if located:
        contiguous = True
    elif is_tensor(feature):
        contiguous = feature.is_contiguous()
    else:
        contiguous = type(feature) is np.ndarray and feature.flags.c_contiguous
    if not (contiguous and bounds[-1] and all(size == 1 for size in feature.shape[:dim])):
        return None
    if located and located[0] != HOST:
        return _launch_items(bundle, located, feature, options)
    view = view_of(feature, copy=options.copy)
    data = view.data
    if isinstance(data, memoryview):
        host_keys = _keys_on_host(bundle, view, data, options)
        return PendingKeys(lambda: host_keys)
    located = data.device, (data.address, data.nbytes), view.dtype, view.shape
    return _launch_items(bundle, located, data.owner, options)


def _keys_on_host(bundle: Bundle, view: View, data: memoryview, options: Options) -> list[Digest]:
    """Return the keys of a bundle's items, whose bytes are `data`."""
    row = len(data) // bundle.bounds[-1]
    shape = list(view.shape)
    host_keys = []
    for start, end in pairwise(bundle.bounds):
        shape[bundle.dim] = end - start
        part = data[start * row : end * row]
        item = View(view.kind, view.dtype, tuple(shape), part)
        host_keys.append(host_key(item, part, options.algorithm, options.tenant, options.threads))
    return host_keys


def _launch_items(
    bundle: Bundle, located: Located, owner: Any, options: Options
) -> PendingKeys | None:
    """Hash a bundle's items on its GPU; None if it cannot: the slices are copied then."""
    device, (address, nbytes), dtype, shape = located
    bounds, dim = bundle.bounds, bundle.dim
    algorithm, tenant, _, _ = options
    row = nbytes // bounds[-1]

    def template(length: int) -> tuple[bytes, int]:
        item_shape = (*shape[:dim], length, *shape[dim + 1 :])
        return preimage_template("tensor", dtype, item_shape, algorithm)

    count = len(bundle)
    if isinstance(bounds, range) and nbytes:  # 64 items in 38 instead of 46 µs
        size = bounds.step * row
        segments = cuda.Segments(range(address, address + nbytes, size), [size] * count)
        templates = [template(bounds.step)] * count
    else:
        lengths = list(map(sub, bounds[1:], bounds))
        by_length = {length: template(length) for length in set(lengths)}
        segments = cuda.Segments(
            [address + start * row for start in bounds[:-1]], [length * row for length in lengths]
        )
        templates = [by_length[length] for length in lengths]
    try:
        pending = launch_keys(device, segments, templates, algorithm, tenant)
    except DeviceError:
        return None

    def collect(_: Any = owner) -> list[Digest]:  # keeps the memory until it has been read
        digests = blank_digests("blake3", count)
        fill_digests(digests, pending.wait())
        return digests

    return PendingKeys(collect)


def _short_key(
    located: Located, algorithm: Algorithm, tenant: bytes | None, threads: int | None
) -> Digest:
    """Return the key of a short tensor on the host."""
    _, segment, dtype, shape = located
    content = hash_raw(copy_located(segment), algorithm, threads)
    return frame_raw("tensor", dtype, shape, algorithm, content, b"", tenant)
