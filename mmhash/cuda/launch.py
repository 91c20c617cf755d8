"""Digests of segments of device memory: one launch for a list, results in pinned memory."""

from collections.abc import Sequence
from time import perf_counter, sleep
from typing import Final, Literal

from mmhash.algorithms import ALGORITHM_SPECS, DIGEST_SIZE, Algorithm, KernelSpec
from mmhash.cuda.device import Device, current_stream, device_of
from mmhash.cuda.frames import Frames
from mmhash.cuda.slots import CAPACITIES, MAX_PREIMAGES, MAX_SEGMENTS, RESULT_SIZE, Slot
from mmhash.cuda.tiles import cut
from mmhash.errors import DeviceError

Hash = Algorithm | Literal["sglang"]
"""What a launch computes: the digests of an algorithm, or SGLang's own hashes of features."""

_KERNELS: Final[dict[Hash, KernelSpec]] = {
    **{name: spec.kernels for name, spec in ALGORITHM_SPECS.items()},
    "sglang": KernelSpec(threads=256, node_size=8, tile_shift=15),
}
_KERNEL_NAMES: Final = {
    name: [f"{name}_{capacity}" for capacity in CAPACITIES] for name in _KERNELS
}
_RESULT_SIZES: Final = {**DIGEST_SIZE, "sglang": 8}

# A waiting thread polls the flag. The thread holds the GIL at first: most launches end by then, and
# a thread that yields gets the GIL back late. Then it lets other threads run between two polls, and
# later it sleeps between them. A CUDA event would make each launch longer, on the host and on the
# device.
_HOLD_S = 250e-6
_SPIN_S = 2e-3
_SLEEP_S = 50e-6


def hash_segments(
    device_index: int,
    addresses: Sequence[int],
    lengths: Sequence[int],
    algorithm: Hash,
    *,
    frames: Frames | None = None,
    device_out: int = 0,
) -> "Pending":
    """Start hashing segments of a device's memory, by address and length in bytes; do not wait.

    The work is ordered after earlier work on torch's current stream and nothing else. The memory
    must not change until `wait()` returns: keep its tensors alive, and record a tensor on the
    current stream if the tensor belongs to another stream. `device_out` is a device address that
    also receives the results, 32 bytes per segment.
    """
    device = device_of(device_index)
    stream = current_stream(device_index)
    with device.context():
        return Pending(
            [
                _launch(
                    device,
                    stream,
                    addresses[start:end],
                    lengths[start:end],
                    algorithm,
                    frames=frames and frames.part(start, end),
                    device_out=device_out and device_out + start * RESULT_SIZE,
                )
                for start, end in _batches(len(lengths), frames)
            ]
        )


class Pending:
    """Digests that a device is still computing."""

    def __init__(self, launches: "list[_Launch]") -> None:
        self._launches = launches

    def wait(self) -> list[bytes]:
        """Return the digests of the segments in order; with frames, their keys."""
        return [result for launch in self._launches for result in launch.wait()]


def _batches(count: int, frames: Frames | None) -> list[tuple[int, int]]:
    """Cut a list into launches, each with as many segments and preimages as a launch holds."""
    if 0 < count <= MAX_PREIMAGES:
        return [(0, count)]
    size = MAX_SEGMENTS
    if frames and len(set(map(id, frames.items))) > MAX_PREIMAGES:
        size = MAX_PREIMAGES
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def _launch(
    device: Device,
    stream: int,
    addresses: Sequence[int],
    lengths: Sequence[int],
    algorithm: Hash,
    *,
    frames: Frames | None,
    device_out: int,
) -> "_Launch":
    """Launch one kernel over segments, in a slot that holds its parameters and results."""
    spec = _KERNELS[algorithm]
    kernels = device.kernels(f"{algorithm}.cu", _KERNEL_NAMES[algorithm])
    grid = cut(addresses, lengths, spec.tile_shift, device.processors)
    slot = device.slot(grid.tiles * spec.node_size + len(lengths) * 32, stream)
    result_size = 32 if frames else _RESULT_SIZES[algorithm]
    launch = _Launch(device, stream, slot, len(lengths), result_size)
    variant = slot.fill(grid, frames, device_out)
    try:
        device.driver.launch(
            kernels[variant], grid.tiles, spec.threads, stream, slot.arguments[variant]
        )
    except DeviceError:
        slot.cancel()
        raise
    return launch


class _Launch:
    """A launch in its slot.

    The device gets the slot back when nothing refers to the launch any more.
    """

    __slots__ = ("_count", "_device", "_result_size", "_slot", "_stream")

    def __init__(
        self, device: Device, stream: int, slot: Slot, count: int, result_size: int
    ) -> None:
        self._device = device
        self._stream = stream
        self._slot = slot
        self._count = count
        self._result_size = result_size

    def __del__(self) -> None:
        self._device.slots.append(self._slot)

    def wait(self) -> list[bytes]:
        """Return the results once the kernel has ended."""
        slot = self._slot
        if slot.is_busy():
            start = perf_counter()
            while slot.is_busy():
                waited = perf_counter() - start
                if waited > _SPIN_S:
                    self._check_stream()
                    sleep(_SLEEP_S)
                elif waited > _HOLD_S:
                    sleep(0)
        return slot.read_results(self._count, self._result_size)

    def _check_stream(self) -> None:
        with self._device.context():
            is_finished = self._device.driver.finished(self._stream)
        if is_finished and self._slot.is_busy():
            raise DeviceError("a kernel ended without its results")
