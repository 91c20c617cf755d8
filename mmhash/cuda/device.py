"""A CUDA device: its context, its kernels, and the slots that launches share."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

from mmhash.cuda.compiler import OLDEST, load_kernels, nvrtc_version
from mmhash.cuda.driver import driver
from mmhash.cuda.slots import Slot
from mmhash.errors import DeviceError

_SMALLEST_SCRATCH = 64 << 10

_NO_CHANGE = nullcontext()


class Device:
    """A device with its kernels, and the slots free for the next launch."""

    def __init__(self, index: int) -> None:
        self.driver = driver()
        if not 0 <= index < self.driver.count():
            raise DeviceError(f"there is no CUDA device {index}")
        capability = self.driver.capability(index)
        if capability < OLDEST:
            raise DeviceError(
                f"CUDA device {index} is sm_{capability}: the kernels need sm_{OLDEST} or newer"
            )
        nvrtc_version()  # raises before a context is created if NVRTC is missing
        self._capability = capability
        self.processors = self.driver.processors(index)
        self._context = self.driver.primary_context(index)
        self._kernels: dict[str, list[int]] = {}
        self._loading = threading.Lock()
        self.slots: list[Slot] = []
        """The slots that no launch refers to. The kernel of a dropped launch may still run."""

    def context(self) -> AbstractContextManager[None]:
        """Make the device's context current in the calling thread."""
        if self.driver.current_context() == self._context:  # usual in torch programs
            return _NO_CHANGE
        return self._pushed_context()

    @contextmanager
    def _pushed_context(self) -> Iterator[None]:
        self.driver.push(self._context)
        try:
            yield
        finally:
            self.driver.pop()

    def kernels(self, source: str, names: Sequence[str]) -> list[int]:
        """Return the kernels of a source by name; compile and load them once."""
        kernels = self._kernels.get(source)
        if kernels is None:
            with self._loading:
                image = load_kernels(source, self._capability)
                kernels = self._kernels[source] = self.driver.functions(image, names)
        return kernels

    def slot(self, scratch: int, stream: int) -> Slot:
        """Take a free slot with at least this much scratch memory, or create one."""
        unfit: list[Slot] = []
        try:
            while self.slots:
                slot = self.slots.pop()
                if slot.capacity >= scratch and not slot.is_busy():
                    return slot
                unfit.append(slot)
        except IndexError:  # another thread took the last slot
            pass
        finally:
            self.slots += unfit
        return Slot(self.driver, max(_SMALLEST_SCRATCH, 1 << (scratch - 1).bit_length()), stream)


@cache
def device_of(index: int) -> Device:
    """Return the device with this index; raise DeviceError if it cannot be used."""
    return Device(index)


@cache
def why_unavailable(device_index: int) -> str | None:
    """Return the reason why a device cannot hash, or None if it can.

    The answer is cached for good.
    """
    try:
        device_of(device_index)
    except DeviceError as error:
        return str(error)
    return None


def current_stream(device_index: int) -> int:
    """Return torch's current stream of a device."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    # Triton uses this function too. The public current_stream() is slow because it creates an
    # object.
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    stream: int = raw(device_index) if raw else torch.cuda.current_stream(device_index).cuda_stream
    return stream
