"""A fixed pool of GPU memory, leased in slices to features for other processes.

The producer's stream copies a feature, then writes a word in host memory that the consumer polls.
So the producer never waits. An event shared between processes would force the consumer to create a
context on the producer's device. With the word, the consumer needs no context, can time out, and
notices when the producer has exited.
"""

import ctypes
import os
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mmhash.arguments import check_int
from mmhash.errors import DeviceError, InputTypeError, InputValueError
from mmhash.forks import check_not_forked
from mmhash.torch_tensor import DeviceBytes, is_tensor
from mmhash.transport import ipc_driver
from mmhash.transport.cuda_tensor import IpcTensor, Mapping, mappings, producer_tensor
from mmhash.transport.handles import Grant, Handle
from mmhash.transport.ledger import Ledger
from mmhash.view import View, view_of

if TYPE_CHECKING:
    import torch

# The driver shares memory in pages of this size: a smaller pool would expose its neighbours.
_PAGE = 2 << 20


class FeaturePool:
    """Memory of one GPU, leased to features in slices; a process needs one pool per device.

    A lease ends once each of `consumers` processes has closed the feature that it opened. A lease
    older than `timeout_s` is revoked by the next `lease()`.
    """

    def __init__(
        self,
        device: int | None = None,
        *,
        nbytes: int = 1 << 30,
        consumers: int = 1,
        timeout_s: float = 60.0,
    ) -> None:
        self.nbytes = -(-check_int("nbytes", nbytes, 1) // _PAGE) * _PAGE
        if device is not None:
            check_int("device", device)
        self.device = ipc_driver.current_device() if device is None else device
        self._owner = os.getpid()
        self._base, memory = ipc_driver.allocate(self.device, self.nbytes)
        try:
            self._ledger = Ledger(
                self.nbytes,
                memory,
                device=ipc_driver.uuid(self.device),
                consumers=consumers,
                timeout_s=timeout_s,
            )
            words = ctypes.addressof(ctypes.c_char.from_buffer(self._ledger.mapping))
            self._device_words = ipc_driver.register(self.device, words, len(self._ledger.mapping))
        except BaseException:
            ipc_driver.free(self.device, self._base)
            raise
        # Registered, because the driver does not map a process's own memory.
        mappings.get(self._ledger.layout.name, partial(Mapping, self._base), self.device)
        owned = _Owned(self.device, self._base, words)
        self.close = weakref.finalize(self, _free, self._owner, self._ledger, owned)

    def lease(self, tensor: "torch.Tensor") -> IpcTensor:
        """Copy a tensor of this GPU into a slice, queued on torch's current stream.

        This does not wait. If no slice is free, it raises a TransportError. The caller can then
        pass `SharedTensor.create(tensor)`, which goes through host memory.
        """
        check_not_forked("FeaturePool", self._owner)
        if not is_tensor(tensor):
            raise InputTypeError(f"a pool leases to torch tensors, not a {type(tensor).__name__}")
        view = view_of(tensor)
        if not isinstance(view.data, DeviceBytes) or view.data.device != self.device:
            raise InputValueError(
                f"the pool is on cuda:{self.device}, and the tensor on {tensor.device}"
                + (": use SharedTensor" if tensor.is_cpu else "")
            )
        return self._copy(view, view.data, *self._ledger.grant(view.data.nbytes))

    def _copy(self, view: View, content: DeviceBytes, grant: Grant, offset: int) -> IpcTensor:
        import torch  # noqa: PLC0415  (a tensor has imported it)

        stream = torch.cuda.current_stream(self.device).cuda_stream
        ready = self._device_words + self._ledger.layout.ready_offset(grant.slot)

        def queue_copy(nbytes: int) -> None:
            ipc_driver.copy_then_write(
                self.device,
                stream,
                destination=self._base + offset,
                source=content.address,
                nbytes=nbytes,
                word=ready,
                value=grant.generation,
            )

        handle = Handle("cuda_ipc", "", offset, content.nbytes, view.dtype, view.shape, grant)
        try:
            queue_copy(content.nbytes)
        except BaseException:
            # The copy may be queued without its word, and then no consumer would learn that it is
            # done.
            queue_copy(0)
            raise
        return producer_tensor(handle, self.device)


class _Owned(NamedTuple):
    device: int
    base: int
    registered: int


def _free(owner: int, ledger: Ledger, owned: _Owned) -> None:
    if os.getpid() != owner:  # a forked child must not touch the parent's device
        return
    ledger.close()
    with suppress(DeviceError):  # at exit the driver may be unloaded first
        ipc_driver.unregister(owned.device, owned.registered)
        ipc_driver.free(owned.device, owned.base)
