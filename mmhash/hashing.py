"""The functions digest(), key() and keys().

Data on a GPU is hashed there, in one launch for each GPU, while the CPU hashes the rest.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple, overload

from mmhash import cuda
from mmhash.algorithms import Algorithm, check_algorithm
from mmhash.cpu import hash_bytes
from mmhash.digest import Digest
from mmhash.errors import DeviceError, InputError, InputTypeError, InputValueError
from mmhash.framing import frame, preimage_template, tenant_key
from mmhash.view import DeviceBytes, View, view_of

# Of nested lists: deeper than any processor nests, shallower than Python's stack.
MAX_DEPTH = 16


def digest(
    data: Any, *, algorithm: str = "blake3", threads: int | None = None, copy: bool = True
) -> Digest:
    """Hash the bytes of `data`: bytes-like, numpy array, torch tensor, DLPack array or PIL image.

    The bytes are the elements in C order, little-endian; for an image, its pixels. By default one
    thread hashes inputs below 1 MiB, and all cores larger ones; `threads` overrides this.
    `copy=False` refuses an input that cannot be read in place.
    """
    chosen = check_algorithm(algorithm)
    if _may_have_digest(data.__class__) and (attached := precomputed_digest(data, chosen)):
        return attached
    view = view_of(data, copy=copy)
    content = _content_digest(view.data, chosen, threads, copy)
    if view.check_lease is not None:
        view.check_lease()
    return content


def _content_digest(
    content: memoryview | DeviceBytes, algorithm: Algorithm, threads: int | None, copy: bool
) -> Digest:
    if isinstance(content, DeviceBytes):
        try:
            segment = (content.address, content.nbytes)
            (raw,) = cuda.hash_segments(content.device, [segment], algorithm).wait()
            return Digest(algorithm, raw)
        except DeviceError as error:
            content = _on_the_host(content, error, copy)
    return hash_bytes(content, algorithm, threads)


def key(
    item: Any,
    *,
    algorithm: str = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
    copy: bool = True,
) -> Digest:
    """Return the key of one item: its digest framed with its kind, dtype and shape.

    A list or tuple is one item of several parts. `tenant` is 32 secret bytes: keys of different
    tenants never collide, and cannot be guessed without the secret.
    """
    options = _Options(check_algorithm(algorithm), tenant, threads, copy)
    if isinstance(item, (list, tuple)) or _may_have_digest(item.__class__):
        (item_key,) = _begin([item], options).wait()
        return item_key
    view = view_of(item, copy=copy)
    if isinstance(view.data, memoryview):
        return _host_key(view, view.data, options)
    (item_key,) = _begin_views([view], options)()
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

    Items on a GPU take one launch for each GPU, on the caller's current stream. With `wait=False`
    the function does not wait for them: `wait()` of the result returns the keys.
    """
    if not isinstance(items, (list, tuple, Iterator)):
        raise InputTypeError(
            f"keys() takes a list of items, not one {type(items).__name__}: use key(), or cut a"
            " bundle with split()"
        )
    pending = _begin(
        items, _Options(check_algorithm(algorithm), tenant, threads, copy), "item {}: "
    )
    return pending.wait() if wait else pending


class _Options(NamedTuple):
    algorithm: Algorithm
    tenant: bytes | None
    threads: int | None
    copy: bool


# The plans of a list's parts, the index of a view, or a key that is known already.
_Plan = list["_Plan"] | int | Digest


def _begin(items: Iterable[Any], options: _Options, label: str = "") -> PendingKeys:
    views: list[View] = []
    plans = []
    for index, item in enumerate(items):
        try:
            plans.append(_plan(item, views, options))
        except InputError as error:
            raise type(error)(label.format(index) + str(error)) from error
    leaf_keys = _begin_views(views, options)

    def collect() -> list[Digest]:
        keys_of_views = leaf_keys()
        return [
            keys_of_views[plan]
            if isinstance(plan, int)
            else _assemble(plan, keys_of_views, options)
            for plan in plans
        ]

    return PendingKeys(collect)


def _plan(item: Any, views: list[View], options: _Options, depth: int = 0) -> _Plan:
    """Append the views of `item` and its parts to `views`; return how they make up the item."""
    if isinstance(item, (list, tuple)):
        if depth == MAX_DEPTH:
            raise InputValueError(f"lists are nested deeper than {MAX_DEPTH}")
        return [_plan(part, views, options, depth + 1) for part in item]
    if _may_have_digest(item.__class__) and (
        content := precomputed_digest(item, options.algorithm)
    ):
        return frame(item.kind, item.dtype, item.shape, content, tenant=options.tenant)
    views.append(view_of(item, copy=options.copy))
    return len(views) - 1


@lru_cache(maxsize=256)
def _may_have_digest(kind: type) -> bool:
    """Return True for handles, to which the producer may have attached a digest."""
    return hasattr(kind, "__mmhash_digest__")


def precomputed_digest(handle: Any, algorithm: Algorithm) -> Digest | None:
    """Return the digest that the producer attached to a handle, if there is one."""
    attached: Digest | None = handle.__mmhash_digest__(algorithm)
    return attached


def _assemble(plan: _Plan, leaf_keys: list[Digest], options: _Options) -> Digest:
    if isinstance(plan, Digest):
        return plan
    if isinstance(plan, int):
        return leaf_keys[plan]
    parts = b"".join(_assemble(part, leaf_keys, options).bytes for part in plan)
    content = hash_bytes(memoryview(parts), options.algorithm)
    return frame("list", "", (len(plan),), content, tenant=options.tenant)


def _begin_views(views: list[View], options: _Options) -> Callable[[], list[Digest]]:
    """Start hashing on each GPU, hash data on the host; return a function that collects keys."""
    keys_of_views: dict[int, Digest] = {}
    on_host: list[tuple[int, View, memoryview]] = []
    on_device: dict[int, list[tuple[int, View, DeviceBytes]]] = {}
    for index, view in enumerate(views):
        if isinstance(view.data, DeviceBytes):
            on_device.setdefault(view.data.device, []).append((index, view, view.data))
        else:
            on_host.append((index, view, view.data))
    launches = []
    for device, tensors in on_device.items():
        try:
            launches.append((tensors, _launch(device, tensors, options)))
        except DeviceError as error:
            on_host += [
                (index, view, _on_the_host(data, error, options.copy))
                for index, view, data in tensors
            ]
    for index, view, data in on_host:
        keys_of_views[index] = _host_key(view, data, options)

    def collect() -> list[Digest]:
        for tensors, pending in launches:
            for (index, view, _), key_bytes in zip(tensors, pending.wait(), strict=True):
                if view.check_lease is not None:
                    view.check_lease()
                keys_of_views[index] = Digest("blake3", key_bytes)
        return [keys_of_views[index] for index in range(len(views))]

    return collect


def _launch(
    device: int, tensors: list[tuple[int, View, DeviceBytes]], options: _Options
) -> cuda.Pending:
    """Hash tensors on their device, and frame their digests there too."""
    templates: dict[tuple[str, tuple[int, ...]], tuple[bytes, int]] = {}
    frames, segments = [], []
    for _, (_, dtype, shape, _, _, _), data in tensors:
        template = templates.get((dtype, shape))
        if template is None:
            template = templates[dtype, shape] = preimage_template(
                "tensor", dtype, shape, options.algorithm
            )
        frames.append(template)
        segments.append((data.address, data.nbytes))
    secret = None if options.tenant is None else tenant_key(options.tenant)
    framing = cuda.Frames(*cuda.framing_key(secret), frames)
    return cuda.hash_segments(device, segments, options.algorithm, frames=framing)


def _host_key(view: View, data: memoryview, options: _Options) -> Digest:
    content = hash_bytes(data, options.algorithm, options.threads)
    if view.check_lease is not None:
        view.check_lease()
    return frame(view.kind, view.dtype, view.shape, content, view.extra, tenant=options.tenant)


_warned: set[str] = set()


def _on_the_host(data: DeviceBytes, error: DeviceError, copy: bool) -> memoryview:
    """Copy a GPU's bytes to the host because the GPU cannot hash them, and warn once."""
    if not copy:
        raise InputValueError(
            f"a tensor on GPU {data.device} cannot be read in place, and copy=False forbids a copy:"
            f" {error}"
        ) from error
    reason = f"GPU {data.device} cannot hash ({error}): tensors on it are copied to the host"
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(reason, RuntimeWarning, stacklevel=4)
    return data.to_host()
