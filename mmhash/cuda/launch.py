"""Digests of segments of device memory: one launch for a list, with results in pinned memory."""

import ctypes
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import accumulate
from time import perf_counter, sleep
from typing import Final, NamedTuple

from mmhash.algorithms import ALGORITHM_SPECS, ALGORITHMS, Algorithm
from mmhash.cuda.compiler import OLDEST, load_kernels, nvrtc_version
from mmhash.cuda.driver import Driver, driver
from mmhash.cuda.frames import MAX_PREIMAGE, Frames
from mmhash.errors import DeviceError, InputValueError

Segment = tuple[int, int]  # address, bytes

# Segments that a kernel's parameters hold: one, those that fit 4 KiB, those that fit 32764 bytes.
CAPACITIES: Final = (1, 180, 1600)
MAX_SEGMENTS = CAPACITIES[-1]
_KERNEL_NAMES = {name: [f"{name}_{capacity}" for capacity in CAPACITIES] for name in ALGORITHMS}

# launch.cuh's Launch, and the arrays that follow it for one segment.
_HEAD = struct.Struct("<6Q32s6I")
_SINGLE = struct.Struct("<6Q32s6I2QI")
_FRAME = struct.Struct("<IHH")
_NO_KEY = bytes(32)

# blake3.cu's QUAD_SHIFT, and the `head` of segments without small tiles.
_SMALL_SHIFT = 15
ALL: Final = 0xFFFFFFFF

# Pinned memory of a slot: the flag, the results, then frames and their preimages.
_RESULT = 32
_RESULT_BYTES = struct.Struct(f"{_RESULT}s")
_RESULTS_OFFSET = 64
_FRAMES_OFFSET = _RESULTS_OFFSET + MAX_SEGMENTS * _RESULT
_PREIMAGES_OFFSET = MAX_SEGMENTS * _FRAME.size  # from the frames
_MOST_PREIMAGES = 64  # different ones in a launch
_PREIMAGES_SIZE = _MOST_PREIMAGES * MAX_PREIMAGE
_PINNED = _FRAMES_OFFSET + _PREIMAGES_OFFSET + _PREIMAGES_SIZE

_COUNTERS = (MAX_SEGMENTS + 1) * 4 // 256 * 256 + 256
_SMALLEST_SCRATCH = 64 << 10

# A thread polls the flag, with the GIL, around the time at which the results are expected, and
# sleeps before and after. An event would cost each launch 1 µs here and more on the device.
_POLL_S = 100e-6
_SLEEP_S = 50e-6

# Bytes per second until a device's own rate is known: no device is faster, so no sleep is too long.
# The rate is learned from launches of at least this many bytes.
_HIGHEST_RATE = 1e13
_RATE_FROM = 32 << 20


def hash_segments(
    device_index: int,
    segments: Sequence[Segment],
    algorithm: Algorithm,
    *,
    stream: int | None = None,
    frames: Frames | None = None,
    device_out: int = 0,
) -> "Pending":
    """Start hashing segments of a device's memory, each an (address, bytes); do not wait.

    The work is ordered after the work on `stream` (by default torch's current stream) and nothing
    else. Until `wait()` has returned, the memory must not change: keep its tensors, and if `stream`
    is not the stream of a tensor, record the tensor there. `device_out` is an address on the device
    to which the results are also written, 32 bytes for each segment.
    """
    device = device_of(device_index)
    if stream is None:
        stream = current_stream(device_index)
    pending = Pending()  # if a later launch fails, it returns the slots of the earlier ones
    with device.context():
        for start, end in _batches(len(segments), frames):
            pending.add(
                _launch(
                    device,
                    segments[start:end],
                    algorithm,
                    stream=stream,
                    frames=frames and Frames(frames.key, frames.mode, frames.items[start:end]),
                    device_out=device_out and device_out + start * _RESULT,
                )
            )
    return pending


class Pending:
    """Digests that a device is still computing."""

    def __init__(self) -> None:
        self._launches: list[_Launch] = []
        self._lock = threading.Lock()
        self._results: list[bytes] = []

    def add(self, launch: "_Launch") -> None:
        """Append the results of one more launch."""
        self._launches.append(launch)

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

    def __del__(self) -> None:
        for launch in self._launches:
            launch.abandon()


@cache
def why_unavailable(device_index: int) -> str | None:
    """Return the reason why a device cannot hash, or None if it can; this does not change."""
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
    # The function that Triton uses: 0.1 µs. The public current_stream() creates an object in 3 µs.
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    stream: int = raw(device_index) if raw else torch.cuda.current_stream(device_index).cuda_stream
    return stream


def _batches(count: int, frames: Frames | None) -> list[tuple[int, int]]:
    """Cut a list into launches with at most as many segments and preimages as one holds."""
    if frames is not None and len(frames.items) != count:
        raise InputValueError(f"{len(frames.items)} frames for {count} segments")
    if 0 < count <= _MOST_PREIMAGES:
        return [(0, count)]
    size = MAX_SEGMENTS
    if frames and len(set(map(id, frames.items))) > _MOST_PREIMAGES:
        size = _MOST_PREIMAGES
    return [(start, min(start + size, count)) for start in range(0, count, size)]


class Tiling(NamedTuple):
    """The size of tiles: 2^shift bytes, and from tile `head` of a segment on the small size."""

    shift: int
    head: int


def choose_tiling(lengths: Sequence[int], processors: int) -> Tiling:
    """Return the tiling for BLAKE3.

    Small tiles, with four threads for each chunk, finish sooner as long as a processor has at most
    one (on an H200 1 MiB in 21.1 instead of 23.2 µs). They also take the rest when every processor
    has a tile of 128 chunks; otherwise some processors would do twice the work (20 MiB: 32.1
    instead of 35.1).

    A larger tile has more of its joining done by full warps, a smaller one leaves no processor
    idle. With 128, 256, 512 and 1024 chunks 64 MiB take 58.1, 57.7, 69.9 and 113.8 µs, 128 MiB
    97.0, 93.7, 94.8 and 116.7, 256 MiB 181.7, 167.8, 165.6 and 169.5, 1 GiB 664.6, 615.6, 590.7
    and 581.7.
    """
    total = sum(lengths)
    if total <= processors << _SMALL_SHIFT:
        return Tiling(_SMALL_SHIFT, 0)
    head = processors & ~1  # a pair of nodes starts at an even one
    rest = total - (head << 17)
    if len(lengths) == 1 and 0 < rest <= processors << _SMALL_SHIFT:
        return Tiling(17, head)
    if total < 64 << 20:
        return Tiling(17, ALL)
    if total <= 128 << 20:
        return Tiling(18, ALL)
    return Tiling(19 if total < 1 << 30 else 20, ALL)


class _Grid(NamedTuple):
    """Segments cut into tiles, each of which is one block's work."""

    addresses: tuple[int, ...]
    lengths: tuple[int, ...]
    first_tiles: Sequence[int]
    """The first tile of each segment."""
    tiles: int
    tiling: Tiling


def _cut(segments: Sequence[Segment], algorithm: Algorithm, processors: int) -> _Grid:
    """Cut segments into tiles; an empty segment is one tile."""
    addresses, lengths = zip(*segments, strict=True)
    if min(lengths) < 0:
        raise InputValueError("a segment has a negative length")
    shift = ALGORITHM_SPECS[algorithm].kernels.tile_shift
    tiling = choose_tiling(lengths, processors) if shift is None else Tiling(shift, ALL)
    shift, head = tiling
    first_tiles: Sequence[int]
    if lengths.count(lengths[0]) == len(lengths):  # 5 instead of 9 µs for 64 segments
        each = -(-lengths[0] >> shift) or 1
        tiles = each * len(lengths)
        first_tiles = range(0, tiles, each)
    else:
        *first_tiles, tiles = accumulate([-(-n >> shift) or 1 for n in lengths], initial=0)
    if 0 < head < tiles:  # a single segment
        tiles = head + ((lengths[0] - (head << shift) - 1) >> _SMALL_SHIFT) + 1
    return _Grid(addresses, lengths, first_tiles, tiles, tiling)


def _launch(
    device: "Device",
    segments: Sequence[Segment],
    algorithm: Algorithm,
    *,
    stream: int,
    frames: Frames | None,
    device_out: int,
) -> "_Launch":
    """Launch one kernel over segments, in a slot that holds its parameters and results."""
    spec = ALGORITHM_SPECS[algorithm]
    grid = _cut(segments, algorithm, device.processors)
    slot = device.slot(grid.tiles * spec.kernels.node_size + len(segments) * 32, stream)
    is_started = False
    try:
        variant = slot.fill(grid, frames, device_out)
        kernel = device.kernels(f"{algorithm}.cu", _KERNEL_NAMES[algorithm])[variant]
        shape = (grid.tiles, 1, 1, spec.kernels.threads, 1, 1)
        is_started = True
        status = device.driver.launch(kernel, *shape, 0, stream, slot.arguments[variant], None)
        device.driver.check("cuLaunchKernel", status)
    except BaseException as error:
        if is_started and not isinstance(error, DeviceError):
            # A signal's exception: the kernel may still write.
            device.abandoned_slots.append((slot, slot.ticket))
        else:
            device.free_slots.append(slot)
        raise
    return _Launch(device, stream, slot, frames, algorithm=algorithm, lengths=grid.lengths)


class _Slot:
    """The memory of one launch, in use until its results are read."""

    def __init__(self, cuda: Driver, scratch: int, stream: int) -> None:
        self.capacity = scratch
        self.counters = cuda.allocate(_COUNTERS + scratch)
        self.scratch = self.counters + _COUNTERS
        cuda.call("cuMemsetD32Async", self.counters, 0, _COUNTERS // 4, stream)
        self.pinned, self._pinned_on_device = cuda.allocate_pinned(_PINNED)
        ctypes.memset(self.pinned, 0, _RESULTS_OFFSET)
        self.flag = ctypes.c_uint32.from_address(self.pinned)
        self.ticket = 0
        sizes = [_HEAD.size + 20 * capacity + 4 for capacity in CAPACITIES]
        self._parameters = [ctypes.create_string_buffer(size) for size in sizes]
        self.arguments = [
            (ctypes.c_void_p * 1)(ctypes.addressof(buffer)) for buffer in self._parameters
        ]

    def fill(self, grid: _Grid, frames: Frames | None, device_out: int) -> int:
        """Write a launch's parameters; return the index of its kernel, by capacity."""
        self.ticket = self.ticket % 0xFFFFFFFF + 1
        frames_address = self._put_frames(frames) if frames else 0
        key, mode = (frames.key, frames.mode) if frames else (_NO_KEY, 0)
        count = len(grid.lengths)
        flag = self._pinned_on_device
        results = flag + _RESULTS_OFFSET
        shift, head = grid.tiling
        launch = (
            *(self.scratch, self.counters, results, device_out, flag, frames_address),
            *(key, mode, self.ticket, count, shift, 1, head),
        )
        variant = 0 if count == 1 else 1 if count <= CAPACITIES[1] else 2
        parameters = self._parameters[variant]
        try:
            if variant == 0:
                _SINGLE.pack_into(parameters, 0, *launch, grid.addresses[0], grid.lengths[0], 0)
            else:
                capacity, offset = CAPACITIES[variant], _HEAD.size
                _HEAD.pack_into(parameters, 0, *launch)
                struct.pack_into(f"<{count}Q", parameters, offset, *grid.addresses)
                struct.pack_into(f"<{count}Q", parameters, offset + 8 * capacity, *grid.lengths)
                struct.pack_into(
                    f"<{count}I", parameters, offset + 16 * capacity, *grid.first_tiles
                )
        except struct.error as error:
            raise InputValueError(f"a segment is an address and a length: {error}") from error
        return variant

    def _put_frames(self, frames: Frames) -> int:
        """Write the frames to pinned memory, each object once; return their device address."""
        items = frames.items
        # As one object in most lists: 2 instead of 9 µs for 64 items.
        is_single = items.count(items[0]) == len(items)
        different = items[:1] if is_single else {id(item): item for item in items}.values()
        packed: dict[int, bytes] = {}
        preimages: list[bytes] = []
        offset = _PREIMAGES_OFFSET
        for item in different:
            if item is None:
                packed[id(item)] = bytes(_FRAME.size)
                continue
            preimage, hole = item
            if len(preimage) > MAX_PREIMAGE:
                raise InputValueError(f"a frame on the device has at most {MAX_PREIMAGE} bytes")
            packed[id(item)] = _FRAME.pack(offset, len(preimage), hole)
            padded = preimage + bytes(-len(preimage) % 16)
            preimages.append(padded)
            offset += len(padded)
        if is_single:
            table = packed[id(items[0])] * len(items)
        else:
            table = b"".join([packed[id(item)] for item in items])
        start = self.pinned + _FRAMES_OFFSET
        ctypes.memmove(start, table, len(table))
        ctypes.memmove(start + _PREIMAGES_OFFSET, b"".join(preimages), offset - _PREIMAGES_OFFSET)
        return self._pinned_on_device + _FRAMES_OFFSET


class _Launch:
    """One launch between its start and the reading of its results."""

    __slots__ = (
        "_algorithm",
        "_count",
        "_device",
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
        device: "Device",
        stream: int,
        slot: _Slot,
        frames: Frames | None,
        *,
        algorithm: Algorithm,
        lengths: tuple[int, ...],
    ) -> None:
        self._start = perf_counter()
        self._device = device
        self._algorithm = algorithm
        self._count = len(lengths)
        self._nbytes = sum(lengths)
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
        content = ctypes.string_at(slot.pinned + _RESULTS_OFFSET, self._count * _RESULT)
        self._results_read = True
        self._device.free_slots.append(slot)
        results = [result for (result,) in _RESULT_BYTES.iter_unpack(content)]
        size = ALGORITHM_SPECS[self._algorithm].digest_size
        if size == _RESULT:
            return results
        frames = self._frames.items if self._frames else [None] * self._count
        return [
            result if frame else result[:size]
            for result, frame in zip(results, frames, strict=True)
        ]

    def _wait(self) -> None:
        """Sleep until shortly before the results are expected, then poll, then sleep again."""
        flag, ticket, rates = self._slot.flag, self._ticket, self._device.rates
        expected = self._nbytes / rates.get(self._algorithm, _HIGHEST_RATE)
        end = self._start + expected
        half = self._start + expected / 2 - perf_counter()
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

    def abandon(self) -> None:
        if not self._results_read:  # else it is free: a signal interrupted Pending.wait()
            self._device.abandoned_slots.append((self._slot, self._ticket))


class Device:
    """A device with its kernels, and the slots that are free for the next launch."""

    def __init__(self, index: int) -> None:
        self.driver = driver()
        if not 0 <= index < self.driver.count():
            raise DeviceError(f"there is no CUDA device {index}")
        capability = self.driver.capability(index)
        if capability < OLDEST:
            raise DeviceError(
                f"CUDA device {index} is sm_{capability}: the kernels need sm_{OLDEST} or newer"
            )
        nvrtc_version()  # raises if NVRTC is missing, before a context is created
        self._capability = capability
        self.processors = self.driver.processors(index)
        self._context = self.driver.primary_context(index)
        self._kernels: dict[str, list[int]] = {}
        self._loading = threading.Lock()
        self.rates: dict[str, float] = {}
        """The highest rate seen of each algorithm, in bytes per second, from call to result."""
        self.free_slots: list[_Slot] = []
        self.abandoned_slots: list[tuple[_Slot, int]] = []

    def context(self) -> AbstractContextManager[None]:
        """Make the device's context current in the calling thread."""
        if self.driver.current_context() == self._context:  # as in all of torch's programs
            return nullcontext()
        return self._pushed_context()

    @contextmanager
    def _pushed_context(self) -> Iterator[None]:
        self.driver.push(self._context)
        try:
            yield
        finally:
            self.driver.pop()

    def kernels(self, source: str, names: Sequence[str]) -> list[int]:
        """Return kernels of a source by their names; compiled and loaded once."""
        kernels = self._kernels.get(source)
        if kernels is None:
            with self._loading:
                image = load_kernels(source, self._capability)
                kernels = self._kernels[source] = self.driver.functions(image, names)
        return kernels

    def slot(self, scratch: int, stream: int) -> _Slot:
        """Take a free slot with at least this much scratch memory, or create one."""
        slot = self._take_free(scratch)
        if slot is None and self.abandoned_slots:
            # Also if smaller ones are free: they would keep abandoned ones from use forever.
            self._reclaim_abandoned()
            slot = self._take_free(scratch)
        if slot is not None:
            return slot
        return _Slot(self.driver, max(_SMALLEST_SCRATCH, 1 << (scratch - 1).bit_length()), stream)

    def _take_free(self, scratch: int) -> _Slot | None:
        """Take a free slot with at least this much scratch memory, if there is one."""
        too_small: list[_Slot] = []
        try:
            while self.free_slots:
                slot = self.free_slots.pop()
                if slot.capacity >= scratch:
                    return slot
                too_small.append(slot)
        except IndexError:  # another thread took the last
            pass
        finally:
            self.free_slots += too_small
        return None

    def _reclaim_abandoned(self) -> None:
        """Free the abandoned slots whose launches have finished."""
        abandoned_slots, self.abandoned_slots = self.abandoned_slots, []
        for slot, ticket in abandoned_slots:
            if slot.flag.value == ticket:
                self.free_slots.append(slot)
            else:
                self.abandoned_slots.append((slot, ticket))


@cache
def device_of(index: int) -> Device:
    """Return the device with this index; a DeviceError if it cannot be used."""
    return Device(index)
