"""The leaves of a list of items: located, grouped by GPU, launched and collected.

A leaf is an item, or part of an item, that has bytes. The host hashes its own leaves while the GPUs
hash theirs.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from mmhash import cuda
from mmhash.algorithms import ALGORITHM_SPECS, Algorithm
from mmhash.cpu import hash_raw
from mmhash.errors import DeviceError, InputValueError
from mmhash.framing import (
    check_tenant,
    frame_raw,
    frame_template,
    preimage_template,
    tenant_key,
)
from mmhash.split import LISTS
from mmhash.torch_tensor import HOST, DeviceBytes, copy_bytes, locate_list
from mmhash.view import Members, read_view

if TYPE_CHECKING:
    from mmhash.states import FlatBuffer

# How deep lists may nest: deeper than any processor nests them, but within Python's stack.
MAX_DEPTH = 16

# Launch a full group at once: the GPU hashes it while the CPU prepares the next.
_LAUNCH_FROM = 32

# Host data up to this size is hashed as soon as it is located; longer data, once the GPUs are busy.
# Keeping views of many short items until then costs more than hashing them.
SHORT = 64 << 10

Plan = list["Plan"] | int | bytes
"""How leaves make up an item: the plans of a list's parts, a leaf's number, or a known key."""


class Options(NamedTuple):
    """The options of a call."""

    algorithm: Algorithm
    tenant: bytes | None
    threads: int | None


class Group:
    """Tensors on one GPU that are hashed in one launch, as parallel lists."""

    def __init__(self, device: int, options: Options) -> None:
        self.device = device
        self.options = options
        self.numbers: list[int] = []
        self.addresses: list[int] = []
        self.lengths: list[int] = []
        self.templates: list[tuple[bytes, int]] = []  # of the preimages of the keys
        # tensors or DeviceBytes, which keep the memory alive until it is read
        self.owners: list[Any] = []
        self.lease_checks: list[Callable[[], None]] = []

    def add(self, number: int, view: Members, data: DeviceBytes) -> None:
        """Add the view of a tensor on this GPU, whose bytes are `data`."""
        _, dtype, shape, _, _, check_lease = view
        template = preimage_template("tensor", dtype, shape, self.options.algorithm)
        self.extend((number,), (data.address,), (data.nbytes,), (template,), (data,))
        if check_lease is not None:
            self.lease_checks.append(check_lease)

    def extend(self, *columns: Iterable[Any]) -> None:
        """Add tensors: their numbers, addresses, lengths, templates and owners."""
        numbers, addresses, lengths, templates, owners = columns
        self.numbers += numbers
        self.addresses += addresses
        self.lengths += lengths
        self.templates += templates
        self.owners += owners

    def launch(self) -> Callable[[], list[bytes]]:
        """Start hashing; return a function that waits for the keys.

        If the GPU cannot hash, the tensors are copied to the host and hashed there at once.
        """
        algorithm, tenant, _ = self.options
        secret = None if tenant is None else tenant_key(tenant)
        frames = cuda.Frames(*cuda.framing_key(secret), self.templates)
        try:
            pending = cuda.hash_segments(
                self.device, self.addresses, self.lengths, algorithm, frames=frames
            )
        except DeviceError as error:
            _warn_of_copies(self.device, error)
            results = self._hash_on_host()
            return lambda: results

        def collect() -> list[bytes]:
            results = pending.wait()
            for check_lease in self.lease_checks:
                check_lease()
            return results

        return collect

    def _hash_on_host(self) -> list[bytes]:
        algorithm, tenant, threads = self.options
        digests = [hash_raw(data, algorithm, threads) for data in self._copies()]
        for check_lease in self.lease_checks:
            check_lease()
        return [
            frame_template(template, digest, tenant)
            for template, digest in zip(self.templates, digests, strict=True)
        ]

    def _copies(self) -> Iterator[memoryview]:
        """Yield the bytes of each tensor, copied to the host; items of a bundle share one copy."""
        owner: Any = None
        start, copied = 0, memoryview(b"")
        for address, nbytes, each in zip(self.addresses, self.lengths, self.owners, strict=True):
            if each is not owner:
                owner = content = each
                if not isinstance(each, DeviceBytes):
                    content = DeviceBytes(self.device, each.data_ptr(), each.nbytes, each)
                start, copied = content.address, content.to_host()
            yield copied[address - start : address - start + nbytes]


class Leaves:
    """The leaves of a list of items, and the keys that are already known."""

    def __init__(self, options: Options) -> None:
        self._options = options
        # Check the tenant before any item is read: the error must not blame an item.
        check_tenant(options.tenant)
        self._hash: Callable[[FlatBuffer], bytes] = (
            ALGORITHM_SPECS[options.algorithm].hash_short
            if options.threads is None
            else partial(hash_raw, algorithm=options.algorithm, threads=options.threads)
        )
        self._count = 0
        self._long: list[tuple[int, Members]] = []  # on the host
        self._groups: dict[int, Group] = {}  # by device
        self._launches: list[tuple[list[int], Callable[[], list[bytes]]]] = []
        self._keys: dict[int, bytes] = {}

    def add(self, item: Any, depth: int = 0) -> Plan:
        """Add the leaves of an item; return how they make up the item."""
        kind = item.__class__
        if kind is bytes and len(item) <= SHORT:  # a View would take longer
            algorithm, tenant, _ = self._options
            return frame_raw("bytes", "", (), algorithm, self._hash(item), b"", tenant)
        if isinstance(item, LISTS):
            if depth == MAX_DEPTH:
                raise InputValueError(f"lists are nested deeper than {MAX_DEPTH}")
            return [self.add(part, depth + 1) for part in item]
        view = read_view(item)
        name, dtype, shape, data, extra, check_lease = view
        if isinstance(data, DeviceBytes):
            group = self._group(data.device)
            group.add(self._count, view, data)
            self._launch_full(group)
        elif len(data) <= SHORT:
            content = self._hash(data)
            if check_lease is not None:
                check_lease()
            algorithm, tenant, _ = self._options
            return frame_raw(name, dtype, shape, algorithm, content, extra, tenant)
        else:
            self._long.append((self._count, view))
        self._count += 1
        return self._count - 1

    def add_list(self, items: Sequence[Any]) -> Iterable[int | bytes] | None:
        """Add tensors that are located together; return None if each must be added by itself."""
        located = locate_list(items)
        if located is None:
            return None
        devices, addresses, lengths, dtype, shapes = located
        algorithm, tenant, _ = self._options
        if devices[0] == HOST:
            contents = map(self._hash, map(copy_bytes, addresses, lengths))
            return [
                frame_raw("tensor", dtype, shape, algorithm, content, b"", tenant)
                for shape, content in zip(shapes, contents, strict=True)
            ]
        count = len(items)
        numbers = range(self._count, self._count + count)
        self._count += count
        template = partial(preimage_template, "tensor", dtype, algorithm=algorithm)
        if shapes.count(shapes[0]) == count:
            templates = [template(shapes[0])] * count
        else:
            templates = list(map(template, shapes))
        for device in set(devices):
            on_device = [each == device for each in devices]
            group = self._group(device)
            columns = numbers, addresses, lengths, templates, items
            group.extend(*(compress(column, on_device) for column in columns))
            self._launch_full(group)
        return numbers

    def _group(self, device: int) -> Group:
        group = self._groups.get(device)
        if group is None:
            group = self._groups[device] = Group(device, self._options)
        return group

    def _launch_full(self, group: Group) -> None:
        if len(group.numbers) >= _LAUNCH_FROM:
            self._launch(self._groups.pop(group.device))

    def _launch(self, group: Group) -> None:
        self._launches.append((group.numbers, group.launch()))

    def start(self) -> None:
        """Launch the remaining groups, and hash the long data on the host."""
        while self._groups:
            self._launch(self._groups.popitem()[1])
        for number, view in self._long:
            self._keys[number] = hash_view(view, *self._options)
        self._long.clear()

    def read_one(self) -> None:
        """Read the leaves of one item, whose memory the next item may reuse."""
        self.start()
        if len(self._launches) >= _LAUNCH_FROM:  # each holds scratch memory until it is collected
            self.collect()

    def collect(self) -> dict[int, bytes]:
        """Wait for the GPUs, and return the keys of the leaves by number."""
        for numbers, wait in self._launches:
            self._keys.update(zip(numbers, wait(), strict=True))
        self._launches.clear()
        return self._keys


def hash_view(
    view: Members,
    algorithm: Algorithm,
    tenant: bytes | None,
    threads: int | None,
    framed: bool = True,
) -> bytes:
    """Return the bytes of one leaf's key, or of its digest if not `framed`.

    A GPU computes only the digest: the host frames one digest faster than it sends the frame.
    """
    kind, dtype, shape, data, extra, check_lease = view
    if isinstance(data, DeviceBytes):
        content = _digest_on_gpu(data, algorithm, threads)
    else:
        content = hash_raw(data, algorithm, threads)
    if check_lease is not None:
        check_lease()
    if not framed:
        return content
    return frame_raw(kind, dtype, shape, algorithm, content, extra, tenant)


def _digest_on_gpu(data: DeviceBytes, algorithm: Algorithm, threads: int | None) -> bytes:
    try:
        pending = cuda.hash_segments(data.device, (data.address,), (data.nbytes,), algorithm)
    except DeviceError as error:
        _warn_of_copies(data.device, error)
        return hash_raw(data.to_host(), algorithm, threads)
    return pending.wait()[0]


def _warn_of_copies(device: int, error: DeviceError) -> None:
    """Warn that a GPU cannot hash; by default, Python shows each such warning once."""
    warnings.warn(
        f"GPU {device} cannot hash ({error}): tensors on it are copied to the host",
        RuntimeWarning,
        stacklevel=1,
    )
