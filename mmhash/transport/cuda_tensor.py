"""Slices of another process's GPU memory, mapped for this process's device on reading.

The handle names no device. The driver maps memory of any device for the current device, with peer
access, so no context is created on the producer's device.
"""

import os
import threading
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from mmhash.errors import DeviceError, TransportError
from mmhash.forks import check_not_forked
from mmhash.torch_tensor import DeviceBytes
from mmhash.transport import ipc_driver
from mmhash.transport.feature import Feature
from mmhash.transport.handles import Handle, parse
from mmhash.transport.layout import Layout
from mmhash.transport.lease import Lease
from mmhash.transport.segments import has_owner
from mmhash.transport.shm_tensor import acknowledge_at_end
from mmhash.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

READY_TIMEOUT_S = 30.0  # a producer whose copy takes longer is considered stuck


class IpcTensor(Feature["_IpcBacking"]):
    """A tensor in a FeaturePool of another process, or of this one."""

    @classmethod
    def open(
        cls,
        handle: object,
        *,
        device: int | Literal["producer"] | None = None,
        consumer: int = 0,
    ) -> Self:
        """Open a feature by its handle; nothing is mapped before its bytes are read.

        `device` is the device that reads the feature, by default the device that is current at the
        first read. Reading is fastest on the `"producer"`'s device, but needs a context there.
        `consumer` is this process's number among the pool's consumers.
        """
        backing = _IpcBacking(parse(handle, "cuda_ipc"), None, consumer)
        if device == "producer":
            device = ipc_driver.device_of(backing.lease.layout.device)
        backing.set_default_device(device)
        return cls(backing)

    def reconstruct(self, device: Any = None) -> "torch.Tensor":
        """Return a copy in torch's own memory, which outlives the lease."""
        import torch  # noqa: PLC0415  (only for a tensor)

        wanted = torch.device("cuda" if device is None else device)
        if wanted.type == "cuda":
            self._backing.set_default_device(wanted.index)
        with self.borrow() as tensor:
            copied = tensor.clone() if device is None else tensor.to(wanted, copy=True)
        return copied  # noqa: RET504  (borrow() first checks the lease once more)

    def cpu(self) -> "torch.Tensor":
        """Return a copy on the CPU, as a torch tensor does."""
        return self.reconstruct("cpu")

    @contextmanager
    def borrow(self) -> "Iterator[torch.Tensor]":
        """Yield the tensor in place.

        At the end of the block the current stream is synchronized. If the lease ended earlier, the
        bytes read may belong to another feature, so a TransportError is raised.
        """
        import torch  # noqa: PLC0415  (only for a tensor)

        address = self._backing.address() + self._start
        device = torch.device("cuda", self._backing.device)
        # Given only a pointer, torch would look up the device of the memory and use that device.
        storage = torch._C._construct_storage_from_data_pointer(address, device, self.nbytes)
        flat = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
        yield flat.view(getattr(torch, self.dtype)).reshape(self.shape)
        torch.cuda.current_stream(device).synchronize()
        self._backing.lease.check()

    def __mmhash_view__(self) -> View:
        backing = self._backing
        address = backing.address() + self._start
        content = DeviceBytes(backing.device, address, self.nbytes, cast("torch.Tensor", self))
        return View(self.kind, self.dtype, self.shape, content, check_lease=backing.lease.check)


class _IpcBacking:
    """A lease and the mapping that contains it, for a feature and all its slices."""

    def __init__(self, handle: Handle, device: int | None, consumer: int | None) -> None:
        assert handle.lease is not None  # noqa: S101  (parse() checks it)
        self.handle = handle
        self.lease = Lease(handle.lease, consumer or 0)
        self._device = device
        self._closed = False
        self._mapping: _Mapping | None = None
        self._acknowledge = None
        if consumer is not None:  # not the producer
            self._acknowledge = acknowledge_at_end(self, self.lease)

    @property
    def device(self) -> int:
        if self._device is None:
            self._device = ipc_driver.current_device()
        return self._device

    def set_default_device(self, device: int | None) -> None:
        """Read on `device`, unless a device was chosen before."""
        if self._device is None:
            self._device = device

    def address(self) -> int:
        """Return the feature's address once its copy is done; raise if the lease has ended."""
        if self._closed:
            raise TransportError("the feature was closed")
        if self._mapping is None:
            # No lock: two threads would find the same mapping.
            self.lease.check_range(self.handle.offset, self.handle.nbytes)
            self.lease.wait_ready(READY_TIMEOUT_S)
            self._mapping = mappings.hold(self.lease.layout, self.device, self)
        check_not_forked("IpcTensor", self._mapping.process)
        self.lease.check()
        return self._mapping.base + self.handle.offset

    def close(self) -> None:
        self._closed = True
        if self._mapping is not None:
            self._mapping.users.discard(self)
        if self._acknowledge is not None:
            self._acknowledge()


def producer_tensor(handle: Handle, device: int) -> IpcTensor:
    """Return the producer's side of a lease, which acknowledges nothing."""
    return IpcTensor(_IpcBacking(handle, device, None))


class _Mapping:
    """A pool's memory, mapped for one device of this process."""

    def __init__(self, layout: Layout, device: int, base: int, opened: bool) -> None:
        self.layout = layout
        self.device = device
        self.base = base
        self.process = os.getpid()
        self.opened = opened  # False for this process's own pool
        self.users: weakref.WeakSet[_IpcBacking] = weakref.WeakSet()


class _Mappings:
    """The memory of each pool, mapped once per device and kept for later handles."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._mappings: dict[tuple[str, int], _Mapping] = {}  # by ledger and device
        self.opened = 0  # how many mappings the driver has made

    def hold(self, layout: Layout, device: int, user: _IpcBacking) -> _Mapping:
        """Return the mapping of a pool, which is kept while it has users."""
        with self._lock:
            mapping = self._mappings.get((layout.name, device))
            if mapping is None:
                self._drop_stale()
                try:
                    base = ipc_driver.open_memory(device, layout.memory)
                except DeviceError as error:
                    raise TransportError(f"cannot map the producer's memory: {error}") from error
                self.opened += 1
                mapping = _Mapping(layout, device, base, True)
                self._mappings[layout.name, device] = mapping
            mapping.users.add(user)
            return mapping

    def add_own(self, layout: Layout, device: int, base: int) -> None:
        """Register a pool of this process, because the driver does not map it twice."""
        with self._lock:
            mapping = _Mapping(layout, device, base, False)
            self._mappings[layout.name, device] = mapping

    def remove_own(self, layout: Layout, device: int) -> None:
        """Forget a pool of this process."""
        with self._lock:
            self._mappings.pop((layout.name, device), None)

    def _drop_stale(self) -> None:
        for key, mapping in list(self._mappings.items()):
            if mapping.opened and not mapping.users and not has_owner(mapping.layout.name):
                del self._mappings[key]
                with suppress(DeviceError):
                    ipc_driver.close_memory(mapping.device, mapping.base)


mappings = _Mappings()
