"""One stretch of GPU memory, fixed at the start, in which features travel to other processes.

A consumer learns that a copy is done from a word in host memory, which the producer's stream writes
behind the copy. So the producer waits for nothing, and unlike with an event between processes the
consumer needs no context on the producer's device, waits no longer than he likes, and sees when
the producer is dead.
"""

import ctypes
import os
import threading
import warnings
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from mmhash.errors import DeviceError, InputTypeError, InputValueError
from mmhash.transport import device as gpu
from mmhash.transport.arguments import MAX_WORKERS, check_pool, check_whole
from mmhash.transport.cuda_tensor import IpcTensor, mappings, of_producer
from mmhash.transport.fork import Process, current_process
from mmhash.transport.handles import Grant, Handle
from mmhash.transport.ledger import Claim, Ledger
from mmhash.transport.shm_tensor import SharedTensor, allocate_overflow
from mmhash.view import DeviceBytes, View, is_tensor, view_of

if TYPE_CHECKING:
    import torch

MIB = 1 << 20
# The driver shares memory by pages of this size: a smaller pool would let its neighbours be seen.
PAGE = 2 * MIB

_MOST_MIB = 1 << 20


def budget(workers: int | None = None) -> int:
    """The bytes of one worker's pool: MMHASH_POOL_MB for all of MMHASH_POOL_WORKERS together."""
    total = _setting("MMHASH_POOL_MB", 1024, _MOST_MIB) * MIB
    workers = _setting("MMHASH_POOL_WORKERS", 1, 1 << 16) if workers is None else workers
    check_whole("workers", workers)
    if workers > MAX_WORKERS:
        raise InputValueError(f"a pool is divided among at most {MAX_WORKERS} workers")
    if workers < 1:
        raise InputValueError(f"a pool is divided among at least 1 worker, not {workers}")
    share = total // workers // PAGE * PAGE
    if share == 0:
        raise InputValueError(
            f"MMHASH_POOL_MB gives {workers} workers less than {PAGE // MIB} MiB each"
        )
    return share


def _setting(name: str, default: int, most: int) -> int:
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
        raise InputValueError(f"{name} is a whole number from 1 to {most}, not {text!r}")
    return int(text)


class FeaturePool:
    """Memory of one GPU, leased to features in slices; a process has one a device.

    Of each lease every one of `consumers` processes must say that it is done, by closing what it
    opened; a lease not ended after `timeout` seconds is taken back when there is need of room.
    """

    def __init__(
        self,
        device: int | None = None,
        *,
        workers: int | None = None,
        consumers: int = 1,
        timeout: float = 60.0,
    ) -> None:
        self.nbytes = budget(workers)
        check_pool(self.nbytes, consumers, timeout)
        if device is not None:
            check_whole("device", device)
        self.device = gpu.current_device() if device is None else device
        self._owner = current_process()
        self._base, memory = gpu.allocate(self.device, self.nbytes)
        try:
            self._ledger = Ledger(self.nbytes, memory, consumers=consumers, timeout=timeout)
            here = ctypes.addressof(ctypes.c_char.from_buffer(self._ledger.mapping))
            self._there = gpu.register(self.device, here, len(self._ledger.mapping))
        except BaseException:
            gpu.free(self.device, self._base)
            raise
        self._warned = threading.Event()
        mappings.add_own(self._ledger.layout, self.device, self._base)
        owned = _Owned(self.device, self._base, here)
        self.close = weakref.finalize(self, _free, self._owner, self._ledger, owned)

    def lease(self, tensor: "torch.Tensor") -> IpcTensor | SharedTensor:
        """Copy a tensor of this GPU into a slice, behind what is on torch's current stream.

        Nothing is waited for. If there is no slice, the tensor goes through host memory, and that
        waits for the current stream.
        """
        gpu.check_process(self._owner)
        if not is_tensor(tensor):
            raise InputTypeError(f"a pool leases to torch tensors, not a {type(tensor).__name__}")
        view = view_of(tensor)
        if not isinstance(view.data, DeviceBytes) or view.data.device != self.device:
            raise InputValueError(
                f"the pool is of cuda:{self.device}, the tensor of {tensor.device}"
                + (": use SharedTensor" if tensor.is_cpu else "")
            )
        claim = Claim()
        try:
            granted = self._ledger.grant(view.data.nbytes, claim=claim)
            if granted is None:
                return self._spill(tensor, claim)
            return self._copy(view, view.data, *granted, claim)
        except BaseException:
            self._ledger.withdraw(claim)
            raise

    def __reduce__(self) -> NoReturn:
        raise InputTypeError("a pool is not sent to another process: send its features' handles")

    def _copy(
        self, view: View, content: DeviceBytes, grant: Grant, offset: int, claim: Claim
    ) -> IpcTensor:
        import torch  # noqa: PLC0415  (a tensor is here)

        stream = torch.cuda.current_stream(self.device).cuda_stream
        ready = self._there + self._ledger.layout.ready_at(grant.slot)

        def queue(nbytes: int) -> None:
            gpu.copy_then_write(
                self.device,
                stream,
                to=self._base + offset,
                source=content.address,
                nbytes=nbytes,
                word=ready,
                value=grant.generation,
            )

        handle = Handle("cuda_ipc", "", offset, content.nbytes, view.dtype, view.shape, grant, {})
        feature = of_producer(handle, self.device)
        self._ledger.queued(claim)
        try:
            queue(content.nbytes)
            return feature  # noqa: TRY300  (until it is the caller's, it may be interrupted)
        except BaseException:
            # The copy may be queued without its word: then nobody would know when it is done.
            queue(0)
            raise

    def _spill(self, tensor: "torch.Tensor", claim: Claim) -> SharedTensor:
        if not self._warned.is_set():
            self._warned.set()
            warnings.warn(
                f"the pool of {self.nbytes // MIB} MiB has no slice of {tensor.nbytes} bytes:"
                " tensors go through host memory until it has; MMHASH_POOL_MB makes it larger",
                RuntimeWarning,
                stacklevel=3,
            )
        return allocate_overflow(self._ledger, tensor, claim)


class _Owned(NamedTuple):
    device: int
    base: int
    registered: int


def _free(owner: Process, ledger: Ledger, owned: _Owned) -> None:
    if current_process() != owner:  # a forked child has no part in the parent's device
        return
    ledger.close()
    mappings.remove_own(ledger.layout, owned.device)
    with suppress(DeviceError):  # at the end of a process the driver may have gone first
        gpu.unregister(owned.device, owned.registered)
        gpu.free(owned.device, owned.base)
