"""A slice of another process's GPU memory, mapped for this process's own device when it is read.

The handle names no device: the driver's call maps the memory wherever it lies for the device that
is current here, and peer access does the rest, so that no context is made on the producer's.
"""

import threading
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, cast

from mmhash.errors import DeviceError, TransportError
from mmhash.transport import device as gpu
from mmhash.transport.feature import Feature
from mmhash.transport.fork import current_process, watch_forks
from mmhash.transport.handles import Handle, parse
from mmhash.transport.ledger import Layout, Lease
from mmhash.transport.segments import is_there
from mmhash.transport.shm_tensor import Acknowledgement
from mmhash.view import DeviceBytes, View, view_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

READY_WITHIN = 30.0  # seconds; a producer that is this late is taken for stuck


class IpcTensor(Feature["_Memory"]):
    """A tensor in a FeaturePool of another process, or of this one."""

    @classmethod
    def open(cls, handle: object, *, device: int | None = None, consumer: int = 0) -> Self:
        """A feature by its handle; nothing is mapped before its bytes are read.

        `device` is this process's, by default the current one when they are read. `consumer` is
        this process's number among those that the pool was made for.
        """
        return cls(_Memory(parse(handle, "cuda_ipc"), device, consumer))

    def verify(self) -> None:
        """Raise unless the lease stands and holds what the handle speaks of."""
        self._memory.lease.check_range(self._memory.handle.offset, self._memory.handle.nbytes)

    def reconstruct(self, device: Any = None) -> "torch.Tensor":
        """A copy of it, in torch's own memory; the lease may end afterwards."""
        import torch  # noqa: PLC0415  (a tensor is asked for)

        wanted = torch.device("cuda" if device is None else device)
        if wanted.type == "cuda":
            self._memory.settle(wanted.index)
        with self.borrow() as seen:
            made = seen.clone() if device is None else seen.to(wanted, copy=True)
        return made  # noqa: RET504  (the lease is asked once more before)

    @contextmanager
    def borrow(self) -> "Iterator[torch.Tensor]":
        """The tensor in place, while the block lasts.

        At its end the current stream is waited for, and if the lease ended before that, whatever
        was read is worth nothing: a TransportError says so.
        """
        import torch  # noqa: PLC0415  (a tensor is asked for)

        address = self._memory.address() + self._start
        device = torch.device("cuda", self._memory.device)
        # From a pointer alone torch would look up which device the memory lies on, and go there.
        storage = torch._C._construct_storage_from_data_pointer(address, device, self.nbytes)
        flat = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
        yield flat.view(getattr(torch, self.dtype)).reshape(self.shape)
        torch.cuda.current_stream(device).synchronize()
        self._memory.lease.check()

    def __mmhash_view__(self) -> View:
        memory = self._memory
        address = memory.address() + self._start
        where = LeasedBytes(memory.device, address, self.nbytes, cast("torch.Tensor", self))
        return View(self.kind, self.dtype, self.shape, where, check_lease=memory.lease.check)


class LeasedBytes(DeviceBytes):
    """Bytes of a lease, which torch would look for on the producer's device."""

    __slots__ = ()

    def to_host(self) -> memoryview:
        """A copy of them."""
        feature = cast("IpcTensor", self.owner)
        return view_of(feature.reconstruct("cpu")).on_host()


class _Memory:
    """A lease and the mapping that it lies in, for a feature and all its slices."""

    def __init__(self, handle: Handle, device: int | None, consumer: int | None) -> None:
        assert handle.lease is not None  # noqa: S101  (parse() saw to it)
        self.handle = handle
        self.lease = Lease(handle.lease, consumer or 0)
        self._device = device
        self._closed = False
        self._mapping: _Mapping | None = None
        self._acknowledge = None
        if consumer is not None:  # and not the producer
            self._acknowledge = Acknowledgement(self, self.lease)

    @property
    def device(self) -> int:
        if self._device is None:
            self._device = gpu.current_device()
        return self._device

    def settle(self, device: int | None) -> None:
        """Read on `device`, unless it was said or settled before where to."""
        if self._device is None:
            self._device = device

    def address(self) -> int:
        """Where the feature starts, once its copy is there and for as long as its lease stands."""
        if self._closed:
            raise TransportError("the feature was closed")
        if self._mapping is None:
            # Without a lock: a forked child would inherit it held. Two threads find one mapping.
            self.lease.check_range(self.handle.offset, self.handle.nbytes)
            self.lease.wait_ready(READY_WITHIN)
            self._mapping = mappings.hold(self.lease.layout, self.device, self)
        gpu.check_process(self._mapping.process)
        self.lease.check()
        return self._mapping.base + self.handle.offset

    def close(self) -> None:
        self._closed = True
        if self._mapping is not None:
            self._mapping.users.discard(self)
        if self._acknowledge is not None:
            self._acknowledge()


def of_producer(handle: Handle, device: int) -> IpcTensor:
    """The producer's own side of a lease, which acknowledges nothing."""
    return IpcTensor(_Memory(handle, device, None))


class _Mapping:
    """A pool's memory as one device of this process sees it."""

    def __init__(self, layout: Layout, device: int, base: int, opened: bool) -> None:
        self.layout = layout
        self.device = device
        self.base = base
        self.process = current_process()
        self.opened = opened  # not this process's own
        self.users: weakref.WeakSet[_Memory] = weakref.WeakSet()


class _Mappings:
    """Each pool's memory, mapped once for a device and kept for the next handle."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # By what the driver knows the memory by: a ledger's name can be taken by another file.
        self._known: dict[tuple[str, bytes, int], _Mapping] = {}
        self.opened = 0  # how often the driver has mapped one
        watch_forks(self)

    def after_fork(self) -> None:
        """Forget the parent's mappings in a forked child, in which they are not."""
        self._lock = threading.RLock()
        self._known = {}

    def hold(self, layout: Layout, device: int, user: _Memory) -> _Mapping:
        """The mapping of a pool, which stays while it has users."""
        with self._lock:
            found = self._known.get((layout.name, layout.memory, device))
            if found is None:
                self._drop_stale()
                try:
                    base = gpu.open_memory(device, layout.memory)
                except DeviceError as error:
                    raise TransportError(f"cannot map the producer's memory: {error}") from error
                self.opened += 1
                found = _Mapping(layout, device, base, True)
                self._known[layout.name, layout.memory, device] = found
            if found.layout.nbytes != layout.nbytes:
                raise TransportError("the pool has another size than when it was mapped")
            found.users.add(user)
            return found

    def add_own(self, layout: Layout, device: int, base: int) -> None:
        """Know a pool of this process: the driver does not map it twice."""
        with self._lock:
            mapping = _Mapping(layout, device, base, False)
            self._known[layout.name, layout.memory, device] = mapping

    def remove_own(self, layout: Layout, device: int) -> None:
        """Forget a pool of this process."""
        with self._lock:
            self._known.pop((layout.name, layout.memory, device), None)

    def _drop_stale(self) -> None:
        for key, mapping in list(self._known.items()):
            if mapping.opened and not mapping.users and not is_there(mapping.layout.name):
                del self._known[key]
                with suppress(DeviceError):
                    gpu.close_memory(mapping.device, mapping.base)


mappings = _Mappings()
