"""Segments of device memory to digests: one launch for a list, the results in pinned memory."""

import ctypes
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from time import perf_counter, sleep
from typing import Final, NamedTuple

from mmhash.cpu import XXH3_LEAF
from mmhash.cuda.compiler import OLDEST, load_kernels, nvrtc_version
from mmhash.cuda.driver import Driver, driver
from mmhash.cuda.frames import MAX_PREIMAGE, Frames
from mmhash.digest import DIGEST_SIZE, Algorithm
from mmhash.errors import DeviceError, InputValueError

Segment = tuple[int, int]  # address, bytes

# How many segments a kernel's parameters hold: one, what fits 4 KiB, what fits 32764 bytes.
CAPACITIES: Final = (1, 180, 1600)
MAX_SEGMENTS = CAPACITIES[-1]
THREADS: dict[Algorithm, int] = {"blake3": 128, "xxh3": 160}
NODE: dict[Algorithm, int] = {"blake3": 32, "xxh3": 16}
_SOURCE: dict[Algorithm, str] = {"blake3": "blake3.cu", "xxh3": "xxh3.cu"}
_ENTRIES = {name: [f"{name}_{capacity}" for capacity in CAPACITIES] for name in THREADS}

# launch.cuh's Launch, and what follows it where there is one segment.
_HEAD = struct.Struct("<6Q32s6I")
_SINGLE = struct.Struct("<6Q32s6I2QI")
_FRAME = struct.Struct("<IHH")
_NO_KEY = bytes(32)

# blake3.cu's QUAD_SHIFT, and the `head` of segments without small tiles.
_SMALL_SHIFT = 15
ALL: Final = 0xFFFFFFFF

LEAF_SHIFT = XXH3_LEAF.bit_length() - 1

# Pinned memory of a slot: the flag, the results, then frames and their preimages.
_RESULT = 32
_RESULTS_AT = 64
_FRAMES_AT = _RESULTS_AT + MAX_SEGMENTS * _RESULT
_PREIMAGES_AT = MAX_SEGMENTS * _FRAME.size  # from the frames
_PREIMAGE_ROOM = 64 << 10
_PINNED = _FRAMES_AT + _PREIMAGES_AT + _PREIMAGE_ROOM

_COUNTERS = (MAX_SEGMENTS + 1) * 4 // 256 * 256 + 256
_SMALLEST_SCRATCH = 64 << 10

# A thread looks at the flag, with the GIL, for as long as a small hash takes; then it naps between
# looks. An event would cost each launch 1 µs here and more on the device.
_LOOK_FOR = 100e-6
_NAP = 50e-6


def hash_segments(
    device: int,
    segments: Sequence[Segment],
    algorithm: Algorithm,
    *,
    stream: int | None = None,
    frames: Frames | None = None,
    device_out: int = 0,
) -> "Pending":
    """Hash stretches of a device's memory, each an (address, bytes), without waiting for them.

    The work follows what is on `stream` (torch's current one by default) and nothing else. Until
    `wait()` has returned the memory must stay as it is: keep its tensors, and if another stream
    than theirs is used, record them there. `device_out` is where on the device the results go as
    well, 32 bytes a segment.
    """
    device_state = device_of(device)
    if stream is None:
        stream = current_stream(device)
    pending = Pending([])  # if a later launch fails, it gives back the slots of the earlier ones
    with device_state.context():
        for start, end in _batches(len(segments), frames):
            pending.add(
                _launch(
                    device_state,
                    segments[start:end],
                    algorithm,
                    stream=stream,
                    frames=frames and frames._replace(items=frames.items[start:end]),
                    device_out=device_out and device_out + start * _RESULT,
                )
            )
    return pending


class Pending:
    """Digests on their way from a device."""

    def __init__(self, flights: list["_Launch"]) -> None:
        self._flights = flights
        self._lock = threading.Lock()
        self._results: list[bytes] = []

    def add(self, flight: "_Launch") -> None:
        """Take on one launch more."""
        self._flights.append(flight)

    def done(self) -> bool:
        """Whether wait() would return at once."""
        return all(flight.is_done() for flight in self._flights)

    def wait(self) -> list[bytes]:
        """The segments' digests, or the keys of those that had a frame, in their order."""
        with self._lock:
            while self._flights:
                self._results += self._flights[0].collect()
                del self._flights[0]
            return self._results

    def __del__(self) -> None:
        for flight in self._flights:
            flight.abandon()


@cache
def why_unavailable(device: int) -> str | None:
    """Why a device cannot hash, or None if it can; asked once, for the answer does not change."""
    try:
        device_of(device)
    except DeviceError as error:
        return str(error)
    return None


def current_stream(device: int) -> int:
    """Torch's current stream of a device."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    # What Triton calls: 0.1 µs, where the public current_stream() makes an object in 3 µs.
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    stream: int = raw(device) if raw else torch.cuda.current_stream(device).cuda_stream
    return stream


def _batches(count: int, frames: Frames | None) -> Iterator[tuple[int, int]]:
    """Cut a list into launches; one, unless it is very long or its frames are."""
    if frames is not None and len(frames.items) != count:
        raise InputValueError(f"{len(frames.items)} frames for {count} segments")
    if frames is None:
        for start in range(0, count, MAX_SEGMENTS):
            yield start, min(start + MAX_SEGMENTS, count)
        return
    start, room, seen = 0, _PREIMAGE_ROOM, set[bytes]()
    for index, item in enumerate(frames.items):
        if index - start == MAX_SEGMENTS or room < MAX_PREIMAGE:
            yield start, index
            start, room = index, _PREIMAGE_ROOM
            seen.clear()
        if item is not None and item[0] not in seen:
            if len(item[0]) > MAX_PREIMAGE:
                raise InputValueError(f"a frame on the device has at most {MAX_PREIMAGE} bytes")
            seen.add(item[0])
            room -= (len(item[0]) + 15) // 16 * 16
    if start < count:
        yield start, count


class Tiling(NamedTuple):
    """How segments are cut: tiles of 2^shift bytes, from tile `head` of a segment on small ones."""

    shift: int
    head: int


def shape(lengths: Sequence[int], processors: int) -> Tiling:
    """The shape for BLAKE3.

    Small tiles, four threads a chunk, are sooner done as long as a processor has one at most (on an
    H200 1 MiB in 21.1 instead of 23.2 µs). They also take what is left when every processor has a
    tile of 128 chunks, which else would have some do twice the work (20 MiB: 32.1 instead of 35.1).

    A larger tile has more of its joining done by full warps (at 1 GiB: 1.56, 1.80 and 1.84 TB/s
    with 128, 512 and 1024 chunks), a smaller one leaves no processor idle.
    """
    total = sum(lengths)
    if total <= processors << _SMALL_SHIFT:
        return Tiling(_SMALL_SHIFT, 0)
    head = processors & ~1  # a pair of nodes starts at an even one
    rest = total - (head << 17)
    if len(lengths) == 1 and 0 < rest <= processors << _SMALL_SHIFT:
        return Tiling(17, head)
    if total <= 128 << 20:
        return Tiling(17, ALL)
    if total <= 256 << 20:
        return Tiling(18, ALL)
    return Tiling(19 if total < 1 << 30 else 20, ALL)


def _launch(
    device_state: "Device",
    segments: Sequence[Segment],
    algorithm: Algorithm,
    *,
    stream: int,
    frames: Frames | None,
    device_out: int,
) -> "_Launch":
    count = len(segments)
    addresses = [address for address, _ in segments]
    lengths = [nbytes for _, nbytes in segments]
    if min(lengths) < 0:
        raise InputValueError("a segment has a negative length")
    shift, head = (
        shape(lengths, device_state.processors)
        if algorithm == "blake3"
        else Tiling(LEAF_SHIFT, ALL)
    )
    # An empty segment is a tile as well.
    firsts = list(accumulate([((n - 1) >> shift) + 1 or 1 for n in lengths], initial=0))
    tiles = firsts.pop()
    if 0 < head < tiles:  # a single segment
        tiles = head + ((lengths[0] - (head << shift) - 1) >> _SMALL_SHIFT) + 1
    slot = device_state.slot(tiles * NODE[algorithm] + count * 32, stream)
    started = False
    try:
        slot.ticket = ticket = slot.ticket % 0xFFFFFFFF + 1
        frames_at = slot.put_frames(frames) if frames else 0
        key, mode = (frames.key, frames.mode) if frames else (_NO_KEY, 0)
        which = 0 if count == 1 else 1 if count <= CAPACITIES[1] else 2
        parameters = slot.parameters[which]
        start = (slot.scratch, slot.counters, slot.results, device_out, slot.flag_there, frames_at)
        tail = (key, mode, ticket, count, shift, 1, head)
        if which == 0:
            _SINGLE.pack_into(parameters, 0, *start, *tail, addresses[0], lengths[0], 0)
        else:
            capacity = CAPACITIES[which]
            at = _HEAD.size
            _HEAD.pack_into(parameters, 0, *start, *tail)
            struct.pack_into(f"<{count}Q", parameters, at, *addresses)
            struct.pack_into(f"<{count}Q", parameters, at + 8 * capacity, *lengths)
            struct.pack_into(f"<{count}I", parameters, at + 16 * capacity, *firsts)
        cuda = device_state.driver
        kernel = device_state.kernels(_SOURCE[algorithm], _ENTRIES[algorithm])[which]
        started = True
        status = cuda.launch(
            kernel,
            tiles,
            1,
            1,
            THREADS[algorithm],
            1,
            1,
            0,
            stream,
            slot.arguments[which],
            None,
        )
        cuda.check("cuLaunchKernel", status)
    except BaseException as error:
        if started and not isinstance(error, DeviceError):
            device_state.abandoned_slots.append(
                (slot, slot.ticket)
            )  # a signal's: the kernel may still write
        else:
            device_state.free.append(slot)
        if isinstance(error, struct.error):
            raise InputValueError(f"a segment is an address and a length: {error}") from error
        raise
    size = DIGEST_SIZE[algorithm]
    if frames is None:
        return _Launch(device_state, stream, slot, ticket, [size] * count)
    sizes = [size if item is None else _RESULT for item in frames.items]
    return _Launch(device_state, stream, slot, ticket, sizes)


class _Slot:
    """What one launch has for itself until its results are read."""

    def __init__(self, cuda: Driver, scratch: int, stream: int) -> None:
        self.capacity = scratch
        self.counters = cuda.allocate(_COUNTERS + scratch)
        self.scratch = self.counters + _COUNTERS
        cuda.call("cuMemsetD32Async", self.counters, 0, _COUNTERS // 4, stream)
        self.pinned, there = cuda.allocate_pinned(_PINNED)
        ctypes.memset(self.pinned, 0, _RESULTS_AT)
        self.flag = ctypes.c_uint32.from_address(self.pinned)
        self.flag_there = there
        self.results = there + _RESULTS_AT
        self.frames = there + _FRAMES_AT
        self.ticket = 0
        sizes = [_HEAD.size + 20 * capacity + 4 for capacity in CAPACITIES]
        self.parameters = [ctypes.create_string_buffer(size) for size in sizes]
        self.arguments = [
            (ctypes.c_void_p * 1)(ctypes.addressof(buffer)) for buffer in self.parameters
        ]

    def put_frames(self, frames: Frames) -> int:
        """Lay the frames where the kernel finds them; equal preimages are laid down once."""
        placed: dict[tuple[bytes, int] | None, bytes] = {None: bytes(_FRAME.size)}
        preimages: list[bytes] = []
        table: list[bytes] = []
        at = _PREIMAGES_AT
        for item in frames.items:
            if item is not None and item not in placed:
                preimage, hole = item
                placed[item] = _FRAME.pack(at, len(preimage), hole)
                padded = preimage + bytes(-len(preimage) % 16)
                preimages.append(padded)
                at += len(padded)
            table.append(placed[item])
        here = self.pinned + _FRAMES_AT
        ctypes.memmove(here, b"".join(table), len(table) * _FRAME.size)
        ctypes.memmove(here + _PREIMAGES_AT, b"".join(preimages), at - _PREIMAGES_AT)
        return self.frames


class _Launch:
    """One launch between its start and the reading of its results."""

    __slots__ = ("_card", "_results_read", "_sizes", "_slot", "_stream", "_ticket")

    def __init__(
        self, device_state: "Device", stream: int, slot: _Slot, ticket: int, sizes: list[int]
    ) -> None:
        self._card = device_state
        self._stream = stream
        self._slot = slot
        self._ticket = ticket
        self._sizes = sizes
        self._results_read = False

    def is_done(self) -> bool:
        return self._slot.flag.value == self._ticket

    def collect(self) -> list[bytes]:
        slot, ticket, flag = self._slot, self._ticket, self._slot.flag
        until = perf_counter() + _LOOK_FOR
        while flag.value != ticket:
            if perf_counter() > until:
                self._sleep_until_done()
                break
        results = ctypes.string_at(slot.pinned + _RESULTS_AT, len(self._sizes) * _RESULT)
        self._results_read = True
        self._card.free.append(slot)
        return [
            results[index * _RESULT : index * _RESULT + size]
            for index, size in enumerate(self._sizes)
        ]

    def _sleep_until_done(self) -> None:
        nap = 0.0  # gives the GIL away and comes back at once
        while not self.is_done():
            with self._card.context():
                finished = self._card.driver.finished(self._stream)
            if finished and not self.is_done():
                raise DeviceError("a kernel ended without its results")
            sleep(nap)
            nap = min(nap + 1e-6, _NAP)

    def abandon(self) -> None:
        if not self._results_read:  # else it is free: a signal came before the list was cut
            self._card.abandoned_slots.append((self._slot, self._ticket))


class Device:
    """A device with its kernels, and the slots that are free for the next launch."""

    def __init__(self, device: int) -> None:
        self.driver = driver()
        if not 0 <= device < self.driver.count():
            raise DeviceError(f"there is no CUDA device {device}")
        capability = self.driver.capability(device)
        if capability < OLDEST:
            raise DeviceError(
                f"CUDA device {device} is sm_{capability}: the kernels need sm_{OLDEST} or newer"
            )
        nvrtc_version()  # says that it is missing before a context is made
        self._capability = capability
        self.processors = self.driver.processors(device)
        self._context = self.driver.primary_context(device)
        self._kernels: dict[str, list[int]] = {}
        self._loading = threading.Lock()
        self.free: list[_Slot] = []
        self.abandoned_slots: list[tuple[_Slot, int]] = []

    @contextmanager
    def context(self) -> Iterator[None]:
        """Make the device's context the calling thread's."""
        if self.driver.current_context() == self._context:
            yield
            return
        self.driver.push(self._context)
        try:
            yield
        finally:
            self.driver.pop()

    def kernels(self, source: str, names: Sequence[str]) -> list[int]:
        """Kernels of a source, by their names; compiled and loaded once."""
        found = self._kernels.get(source)
        if found is None:
            with self._loading:
                image = load_kernels(source, self._capability)
                found = self._kernels[source] = self.driver.functions(image, names)
        return found

    def slot(self, scratch: int, stream: int) -> _Slot:
        """A free slot with so much scratch, or a new one."""
        if not self.free and self.abandoned_slots:
            abandoned_slots, self.abandoned_slots = self.abandoned_slots, []
            for slot, ticket in abandoned_slots:
                if slot.flag.value == ticket:
                    self.free.append(slot)
                else:
                    self.abandoned_slots.append((slot, ticket))
        held: list[_Slot] = []
        try:
            while self.free:
                slot = self.free.pop()
                if slot.capacity >= scratch:
                    return slot
                held.append(slot)
        except IndexError:  # another thread took the last
            pass
        finally:
            self.free += held
        return _Slot(self.driver, max(_SMALLEST_SCRATCH, 1 << (scratch - 1).bit_length()), stream)


@cache
def device_of(device: int) -> Device:
    """A device; a DeviceError if it is none of ours."""
    return Device(device)
