"""Digests of segments of device memory: one launch for a list, results in pinned memory."""

import threading
from collections.abc import Sequence
from time import perf_counter, sleep
from typing import Final

from mmhash.algorithms import ALGORITHM_SPECS, ALGORITHMS, Algorithm
from mmhash.cuda.device import Device, current_stream, device_of
from mmhash.cuda.frames import Frames
from mmhash.cuda.slots import CAPACITIES, MAX_PREIMAGES, MAX_SEGMENTS, RESULT_SIZE, Slot
from mmhash.cuda.tiles import Segment, Segments, cut
from mmhash.errors import DeviceError, InputValueError

_KERNEL_NAMES: Final = {
    name: [f"{name}_{capacity}" for capacity in CAPACITIES] for name in ALGORITHMS
}

# A thread polls the flag, holding the GIL, around the time when results are expected, and sleeps
# otherwise. A CUDA event would make each launch longer, on the host and on the device.
_POLL_S = 100e-6
_SLEEP_S = 50e-6

# Bytes per second until a device's own rate is known. No device is faster, so no sleep is too long.
# The rate is learned from launches of at least _RATE_FROM bytes.
_HIGHEST_RATE = 1e13
_RATE_FROM = 32 << 20


def hash_segments(
    device_index: int,
    segments: Sequence[Segment] | Segments,
    algorithm: Algorithm,
    *,
    stream: int | None = None,
    frames: Frames | None = None,
    device_out: int = 0,
) -> "Pending":
    """Start hashing segments of a device's memory, each an (address, bytes); do not wait.

    The work is ordered after earlier work on `stream` (by default torch's current stream) and
    nothing else. The memory must not change until `wait()` returns: keep its tensors alive, and
    record a tensor on `stream` if it belongs to another stream. `device_out` is a device address
    that also receives the results, 32 bytes per segment.
    """
    device = device_of(device_index)
    if stream is None:
        stream = current_stream(device_index)
    addresses, lengths = segments if isinstance(segments, Segments) else _columns(segments)
    with device.context():
        return Pending(
            [
                _launch(
                    device,
                    addresses[start:end],
                    lengths[start:end],
                    algorithm,
                    stream=stream,
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
        self._lock = threading.Lock()
        self._results: list[bytes] = []

    def done(self) -> bool:
        """Return True if wait() would return at once."""
        return all(launch.is_done() for launch in self._launches)

    def wait(self) -> list[bytes]:
        """Return the digests of the segments in order; for a segment with a frame, its key."""
        with self._lock:
            while self._launches:
                self._results += self._launches[0].collect()
                del self._launches[0]
            return self._results


def _columns(segments: Sequence[Segment]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the addresses and the lengths of segments."""
    if not segments:
        return (), ()
    addresses, lengths = zip(*segments, strict=True)
    return addresses, lengths


def _batches(count: int, frames: Frames | None) -> list[tuple[int, int]]:
    """Cut a list into launches, each with as many segments and preimages as a launch holds."""
    if frames is not None and len(frames.items) != count:
        raise InputValueError(f"{len(frames.items)} frames for {count} segments")
    if 0 < count <= MAX_PREIMAGES:
        return [(0, count)]
    size = MAX_SEGMENTS
    if frames and len(set(map(id, frames.items))) > MAX_PREIMAGES:
        size = MAX_PREIMAGES
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def _launch(
    device: Device,
    addresses: Sequence[int],
    lengths: Sequence[int],
    algorithm: Algorithm,
    *,
    stream: int,
    frames: Frames | None,
    device_out: int,
) -> "_Launch":
    """Launch one kernel over segments, in a slot that holds its parameters and results."""
    spec = ALGORITHM_SPECS[algorithm]
    grid = cut(addresses, lengths, algorithm, device.processors)
    slot = device.slot(grid.tiles * spec.kernels.node_size + len(lengths) * 32, stream)
    is_started = False
    try:
        variant = slot.fill(grid, frames, device_out)
        kernel = device.kernels(f"{algorithm}.cu", _KERNEL_NAMES[algorithm])[variant]
        threads = spec.kernels.threads
        is_started = True
        device.driver.launch(kernel, grid.tiles, threads, stream, slot.arguments[variant])
    except BaseException as error:
        if is_started and not isinstance(error, DeviceError):
            # A signal handler raised an exception: the kernel may still write.
            device.abandoned_slots.append((slot, slot.ticket))
        else:
            device.free_slots.append(slot)
        raise
    return _Launch(device, stream, slot, frames, algorithm=algorithm, lengths=lengths)


class _Launch:
    """A launch, from its start until its results are read."""

    __slots__ = (
        "_algorithm",
        "_count",
        "_device",
        "_expected_end",
        "_frames",
        "_nbytes",
        "_results_read",
        "_slot",
        "_start",
        "_stream",
        "_ticket",
    )

    def __init__(
        self,
        device: Device,
        stream: int,
        slot: Slot,
        frames: Frames | None,
        *,
        algorithm: Algorithm,
        lengths: Sequence[int],
    ) -> None:
        self._start = perf_counter()
        self._device = device
        self._algorithm = algorithm
        self._count = len(lengths)
        self._nbytes = sum(lengths)
        # The device finishes the launches before this one first.
        expected = self._nbytes / device.rates.get(algorithm, _HIGHEST_RATE)
        self._expected_end = max(self._start, device.busy_until) + expected
        device.busy_until = self._expected_end
        self._stream = stream
        self._slot = slot
        self._ticket = slot.ticket
        self._frames = frames
        self._results_read = False

    def is_done(self) -> bool:
        return self._slot.flag.value == self._ticket

    def collect(self) -> list[bytes]:
        slot, ticket, flag = self._slot, self._ticket, self._slot.flag
        if flag.value != ticket:
            self._wait()
        results = slot.read_results(self._count)
        self._results_read = True
        self._device.free_slots.append(slot)
        size = ALGORITHM_SPECS[self._algorithm].digest_size
        if size == RESULT_SIZE:
            return results
        frames = self._frames.items if self._frames else [None] * self._count
        return [
            result if frame else result[:size]
            for result, frame in zip(results, frames, strict=True)
        ]

    def _wait(self) -> None:
        """Sleep until shortly before the results are expected, then poll, then sleep again."""
        flag, ticket, end = self._slot.flag, self._ticket, self._expected_end
        half = (self._start + end) / 2 - perf_counter()
        if half > _POLL_S:
            sleep(half)
        while flag.value != ticket and perf_counter() < end - _POLL_S:
            sleep(_SLEEP_S)
        until = max(end, perf_counter()) + _POLL_S
        while flag.value != ticket:
            if perf_counter() > until:
                self._sleep_until_done()
                break
        if self._nbytes >= _RATE_FROM:
            rates = self._device.rates
            seen = self._nbytes / (perf_counter() - self._start)
            rates[self._algorithm] = max(seen, rates.get(self._algorithm, 0))

    def _sleep_until_done(self) -> None:
        seconds = 0.0  # releases the GIL and returns at once
        while not self.is_done():
            with self._device.context():
                finished = self._device.driver.finished(self._stream)
            if finished and not self.is_done():
                raise DeviceError("a kernel ended without its results")
            sleep(seconds)
            seconds = min(seconds + 1e-6, _SLEEP_S)

    def __del__(self) -> None:
        if not self._results_read:  # else the slot is free: a signal interrupted Pending.wait()
            self._device.abandoned_slots.append((self._slot, self._ticket))
