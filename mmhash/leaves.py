"""The leaves of a list of items, hashed where they are: on the host, or in groups on GPUs."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from mmhash import cuda
from mmhash.algorithms import ALGORITHM_SPECS, Algorithm
from mmhash.cpu import hash_raw
from mmhash.digest import Digest
from mmhash.errors import DeviceError, InputValueError
from mmhash.framing import frame_raw, new_framer, preimage_template, tenant_key
from mmhash.states import FlatBuffer
from mmhash.torch_tensor import HOST, DeviceBytes, Located, copy_located
from mmhash.view import Kind, View

# A list of tensors is launched in groups of this size, so that the GPU hashes one group while the
# next is read.
_GROUP = 32

# Data on the host up to this size is hashed when it is read, longer data when the GPUs are busy.
# With their views kept until then, 20 000 items of 4 KiB took 12.5 µs each instead of 6.7.
#
# In a list of 50 000, the package's two calls take 3.2 µs of such an item, and keys() 4.5 of bytes,
# 5.2 of an array and 5.8 of a tensor; with a View and a Digest for each it took 5.4, 6.1 and 8.0.
# 100 000 new digests add 1.0 for each: Python's garbage collector then visits all objects once.
SHORT = 64 << 10

# A leaf on a GPU: its number, location, the tensor that owns the memory, and the check of its
# lease, if it has one. A class would take 0.3 µs more.
_OnGpu = tuple[int, Located, Any, Callable[[], None] | None]


class Options(NamedTuple):
    """The options of a call."""

    algorithm: Algorithm
    tenant: bytes | None
    threads: int | None
    copy: bool


class Leaves:
    """The items and parts of a list that have bytes, hashed where these are."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._host_options = options.algorithm, options.tenant, options.threads
        # An error of the tenant names no item.
        self._frame = new_framer(options.algorithm, options.tenant)
        self._hash_short: Callable[[FlatBuffer], bytes] = (
            ALGORITHM_SPECS[options.algorithm].hash_short
            if options.threads is None
            else partial(hash_raw, algorithm=options.algorithm, threads=options.threads)
        )
        self._count = 0
        self._on_host: list[tuple[int, View, memoryview]] = []
        self._groups: dict[int, list[_OnGpu]] = {}
        self._launches: list[tuple[list[_OnGpu], cuda.Pending]] = []
        self._keys: dict[int, bytes] = {}

    def key_of_short(
        self, kind: Kind, dtype: str, shape: tuple[int, ...], data: FlatBuffer
    ) -> bytes:
        """Return the bytes of the key of a short leaf on the host."""
        return self._frame(kind, dtype, shape, self._hash_short(data))

    def add(self, view: View) -> int | bytes:
        """Add a leaf and return its number; of a short one on the host, return the key."""
        data = view.data
        if not isinstance(data, memoryview):
            located = data.device, (data.address, data.nbytes), view.dtype, view.shape
            return self.add_located(located, data.owner, view.check_lease)
        if len(data) <= SHORT:
            return host_key(view, data, *self._host_options).bytes
        number = self._count
        self._count += 1
        self._on_host.append((number, view, data))
        return number

    def add_located(
        self, located: Located, owner: Any, check_lease: Callable[[], None] | None = None
    ) -> int | bytes:
        """Do the same for a located tensor; launch the group of its GPU when it is full."""
        device, segment, dtype, shape = located
        if device == HOST:
            return self.key_of_short("tensor", dtype, shape, copy_located(segment))
        number = self._count
        self._count += 1
        group = self._groups.get(device)
        if group is None:
            group = self._groups[device] = []
        group.append((number, located, owner, check_lease))
        if len(group) == _GROUP:
            self._launch(device)
        return number

    def _launch(self, device: int) -> None:
        group = self._groups.pop(device)
        algorithm, tenant, _, copy = self._options
        addresses, lengths, templates = [], [], []
        for _, (_, (address, nbytes), dtype, shape), _, _ in group:
            addresses.append(address)
            lengths.append(nbytes)
            templates.append(preimage_template("tensor", dtype, shape, algorithm))
        segments = cuda.Segments(addresses, lengths)
        try:
            pending = launch_keys(device, segments, templates, algorithm, tenant)
        except DeviceError as error:
            check_copy_to_host(device, error, copy)
            for number, (_, segment, dtype, shape), owner, check_lease in group:
                data = DeviceBytes(device, *segment, owner).to_host()
                view = View("tensor", dtype, shape, data, b"", check_lease)
                self._on_host.append((number, view, data))
        else:
            self._launches.append((group, pending))

    def read_added(self) -> None:
        """Launch the other groups, and hash the data on the host."""
        for device in list(self._groups):
            self._launch(device)
        for number, view, data in self._on_host:
            self._keys[number] = host_key(view, data, *self._host_options).bytes
        self._on_host.clear()

    def read_one(self) -> None:
        """Do the same for the leaves of one item, whose memory the next item may have too."""
        self.read_added()
        if len(self._launches) >= _GROUP:  # each holds scratch memory until it is collected
            self._collect()

    def start(self) -> Callable[[], dict[int, bytes]]:
        """Read all leaves; return a function that waits for the GPUs and collects the keys."""
        self.read_added()
        return self._collect

    def _collect(self) -> dict[int, bytes]:
        for group, pending in self._launches:
            # These lists are made while the GPU works.
            numbers = [leaf[0] for leaf in group]
            lease_checks = [leaf[3] for leaf in group if leaf[3] is not None]
            self._keys.update(zip(numbers, pending.wait(), strict=True))
            for check_lease in lease_checks:
                check_lease()
        self._launches.clear()
        return self._keys


def launch_keys(
    device: int,
    segments: Sequence[cuda.Segment] | cuda.Segments,
    templates: list[tuple[bytes, int]],
    algorithm: Algorithm,
    tenant: bytes | None,
) -> cuda.Pending:
    """Hash tensors on their device, and frame their digests there too."""
    secret = None if tenant is None else tenant_key(tenant)
    framing = cuda.Frames(*cuda.framing_key(secret), templates)
    return cuda.hash_segments(device, segments, algorithm, frames=framing)


def host_key(
    view: View, data: memoryview, algorithm: Algorithm, tenant: bytes | None, threads: int | None
) -> Digest:
    """Return the key of a leaf on the host."""
    content = hash_raw(data, algorithm, threads)
    if view.check_lease is not None:
        view.check_lease()
    return frame_raw(view.kind, view.dtype, view.shape, algorithm, content, view.extra, tenant)


_warned: set[str] = set()


def check_copy_to_host(device: int, error: DeviceError, copy: bool) -> None:
    """Warn once that a GPU cannot hash, so that its tensors are copied; refuse it if not `copy`."""
    if not copy:
        raise InputValueError(
            f"a tensor on GPU {device} cannot be read in place, and copy=False forbids a copy:"
            f" {error}"
        ) from error
    reason = f"GPU {device} cannot hash ({error}): tensors on it are copied to the host"
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(reason, RuntimeWarning, stacklevel=4)
