"""Slices of another process's GPU memory, mapped for this process's device on reading.

The handle names no device. The driver maps memory of any device for the current device, with peer
access, so no context is created on the producer's device.
"""

import os
import weakref
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from mmhash.errors import DeviceError, TransportError
from mmhash.forks import check_not_forked
from mmhash.torch_tensor import DeviceBytes
from mmhash.transport import ipc_driver
from mmhash.transport.feature import Backing, Feature
from mmhash.transport.handles import Handle, parse
from mmhash.transport.lease import Lease
from mmhash.transport.segments import KeptMappings
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


class _IpcBacking(Backing):
    """A lease and the mapping that contains it, for a feature and all its slices."""

    lease: Lease  # parse() checks that the handle has one

    def __init__(self, handle: Handle, device: int | None, consumer: int | None) -> None:
        super().__init__(handle, consumer)
        self._device = device
        self._mapping: Mapping | None = None

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
        self.check_open()
        if self._mapping is None:
            # No lock: two threads would find the same mapping.
            self.lease.check_range(self.handle.offset, self.handle.nbytes)
            self.lease.wait_ready(READY_TIMEOUT_S)
            layout = self.lease.layout
            open_memory = partial(_open_memory, self.device, layout.memory)
            self._mapping = mappings.get(layout.name, open_memory, self.device)
        check_not_forked("IpcTensor", self._mapping.process)
        self.lease.check()
        return self._mapping.base + self.handle.offset


def producer_tensor(handle: Handle, device: int) -> IpcTensor:
    """Return the producer's side of a lease, which acknowledges nothing."""
    return IpcTensor(_IpcBacking(handle, device, None))


class Mapping:
    """A pool's memory, mapped for one device of this process."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.process = os.getpid()


mappings = KeptMappings[Mapping]()
"""The memory of each pool, by the name of its ledger."""


def _open_memory(device: int, memory: bytes) -> Mapping:
    """Map another process's memory; the mapping ends when nothing refers to it."""
    try:
        mapping = Mapping(ipc_driver.open_memory(device, memory))
    except DeviceError as error:
        raise TransportError(f"cannot map the producer's memory: {error}") from error
    # Not at exit: the driver may be unloaded first.
    weakref.finalize(mapping, _close_memory, device, mapping.base, mapping.process).atexit = False
    return mapping


def _close_memory(device: int, base: int, process: int) -> None:
    if os.getpid() == process:  # a forked child must not touch the parent's device
        with suppress(DeviceError):
            ipc_driver.close_memory(device, base)
