"""The leaves of a list of items, hashed where they are: on the host, or in groups on GPUs."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

from mmhash import cuda
from mmhash.algorithms import ALGORITHM_SPECS, Algorithm
from mmhash.cpu import hash_raw
from mmhash.digest import Digest
from mmhash.errors import DeviceError, InputValueError
from mmhash.framing import frame_raw, new_framer, preimage_template, tenant_key
from mmhash.states import FlatBuffer
from mmhash.torch_tensor import HOST, DeviceBytes, Located, LocatedList, copy_located
from mmhash.view import Kind, View

# Leaves on a GPU are launched as soon as there are so many, so that it hashes them while the next
# are read.
_LAUNCH_FROM = 32

# Data on the host up to this size is hashed when it is read, longer data when the GPUs are busy.
# With their views kept until then, 20 000 items of 4 KiB took 12.5 µs each instead of 6.7.
#
# In a list of 100 000, the package's two calls take 3.2 µs of such an item, and keys() 4.1 of
# bytes, 4.6 of an array and 4.9 of a tensor; with a View and a Digest for each, a list of 50 000
# took 5.4, 6.1 and 8.0.
SHORT = 64 << 10


class Options(NamedTuple):
    """The options of a call."""

    algorithm: Algorithm
    tenant: bytes | None
    threads: int | None
    copy: bool


class _Group:
    """Leaves on one GPU that are launched together, with a list of each thing known of them.

    An object for each leaf would take 0.3 µs more.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.addresses: list[int] = []
        self.lengths: list[int] = []
        self.dtypes: list[str] = []
        self.shapes: list[tuple[int, ...]] = []
        self.owners: list[Any] = []  # of the memory
        self.lease_checks: list[Callable[[], None]] = []

    def extend(self, *columns: Iterable[Any]) -> None:
        """Add leaves: numbers, addresses, lengths, dtypes, shapes and owners."""
        numbers, addresses, lengths, dtypes, shapes, owners = columns
        self.numbers += numbers
        self.addresses += addresses
        self.lengths += lengths
        self.dtypes += dtypes
        self.shapes += shapes
        self.owners += owners

    def templates(self, algorithm: Algorithm) -> list[tuple[bytes, int]]:
        """Return the template of each leaf's preimage."""
        dtypes, shapes = self.dtypes, self.shapes
        count = len(shapes)
        if shapes.count(shapes[0]) == count == dtypes.count(dtypes[0]):
            return [preimage_template("tensor", dtypes[0], shapes[0], algorithm)] * count
        return [
            preimage_template("tensor", dtype, shape, algorithm)
            for dtype, shape in zip(dtypes, shapes, strict=True)
        ]


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
        self._groups: defaultdict[int, _Group] = defaultdict(_Group)
        self._launches: list[tuple[_Group, cuda.Pending]] = []
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
        device, (address, nbytes), dtype, shape = located
        if device == HOST:
            content = copy_located((address, nbytes))
            return self.key_of_short("tensor", dtype, shape, content)
        number = self._count
        self._count += 1
        group = self._groups[device]
        group.extend((number,), (address,), (nbytes,), (dtype,), (shape,), (owner,))
        if check_lease is not None:
            group.lease_checks.append(check_lease)
        self._launch_full(device, group)
        return number

    def add_list(self, located: LocatedList, owners: Sequence[Any]) -> Iterable[int | bytes]:
        """Do the same for each tensor of a located list."""
        devices, addresses, lengths, dtype, shapes = located
        if devices[0] == HOST:
            frame, hash_short = self._frame, self._hash_short
            return [
                frame("tensor", dtype, shape, hash_short(copy_located((address, nbytes))))
                for address, nbytes, shape in zip(addresses, lengths, shapes, strict=True)
            ]
        count = len(owners)
        numbers = range(self._count, self._count + count)
        self._count += count
        columns = numbers, addresses, lengths, [dtype] * count, shapes, owners
        for device in set(devices):
            on_device = [each == device for each in devices]
            group = self._groups[device]
            group.extend(*(compress(column, on_device) for column in columns))
            self._launch_full(device, group)
        return numbers

    def _launch_full(self, device: int, group: _Group) -> None:
        if len(group.numbers) >= _LAUNCH_FROM:
            self._launch(device)

    def _launch(self, device: int) -> None:
        group = self._groups.pop(device)
        algorithm, tenant, _, copy = self._options
        segments = cuda.Segments(group.addresses, group.lengths)
        try:
            pending = launch_keys(device, segments, group.templates(algorithm), algorithm, tenant)
        except DeviceError as error:
            check_copy_to_host(device, error, copy)
            self._copy_to_host(device, group)
        else:
            self._launches.append((group, pending))

    def _copy_to_host(self, device: int, group: _Group) -> None:
        segments = zip(group.addresses, group.lengths, group.owners, strict=True)
        contents = [DeviceBytes(device, *segment).to_host() for segment in segments]
        for check_lease in group.lease_checks:
            check_lease()
        leaves = zip(group.numbers, group.dtypes, group.shapes, contents, strict=True)
        for number, dtype, shape, data in leaves:
            self._on_host.append((number, View("tensor", dtype, shape, data), data))

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
        if len(self._launches) >= _LAUNCH_FROM:  # each holds scratch memory until it is collected
            self._collect()

    def start(self) -> Callable[[], dict[int, bytes]]:
        """Read all leaves; return a function that waits for the GPUs and collects the keys."""
        self.read_added()
        return self._collect

    def _collect(self) -> dict[int, bytes]:
        for group, pending in self._launches:
            self._keys.update(zip(group.numbers, pending.wait(), strict=True))
            for check_lease in group.lease_checks:
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
