"""The memory of a launch: parameters, scratch, counters, and results that the host can read."""

import ctypes
import struct
from typing import Final

from mmhash.cuda.driver import Driver
from mmhash.cuda.frames import MAX_PREIMAGE, Frames
from mmhash.cuda.tiles import Grid
from mmhash.errors import InputValueError

# How many segments a kernel's parameters hold: 1, 180 (within 4 KiB) or 1600 (within 32764 bytes).
CAPACITIES: Final = (1, 180, 1600)
MAX_SEGMENTS = CAPACITIES[-1]
MAX_PREIMAGES = 64  # how many different templates a launch may have

_LAUNCH = "<6Q32s6I"  # the struct Launch of launch.cuh
_FRAME = struct.Struct("<IHH")
_NO_KEY = bytes(32)

# The pinned memory of a slot: the flag, the results, then frames and their preimages.
RESULT_SIZE = 32
_RESULTS_OFFSET = 64
_FRAMES_OFFSET = _RESULTS_OFFSET + MAX_SEGMENTS * RESULT_SIZE
_PREIMAGES_OFFSET = MAX_SEGMENTS * _FRAME.size  # offset from the frames
_PINNED = _FRAMES_OFFSET + _PREIMAGES_OFFSET + MAX_PREIMAGES * MAX_PREIMAGE

_COUNTERS = (MAX_SEGMENTS + 1) * 4 // 256 * 256 + 256


class Slot:
    """The memory of one launch, in use until its results are read."""

    def __init__(self, cuda: Driver, scratch: int, stream: int) -> None:
        self.capacity = scratch
        self._counters = cuda.allocate(_COUNTERS + scratch)
        self._scratch = self._counters + _COUNTERS
        cuda.call("cuMemsetD32Async", self._counters, 0, _COUNTERS // 4, stream)
        pinned, self._pinned_on_device = cuda.allocate_pinned(_PINNED)
        ctypes.memset(pinned, 0, _RESULTS_OFFSET)
        self._flag = ctypes.c_uint32.from_address(pinned)
        # A memoryview is faster to read and write than ctypes.
        self._pinned = memoryview((ctypes.c_char * _PINNED).from_address(pinned)).cast("B")
        self._ticket = 0
        sizes = [struct.calcsize(_LAUNCH) + 20 * capacity + 4 for capacity in CAPACITIES]
        self._parameters = [ctypes.create_string_buffer(size) for size in sizes]
        self.arguments = [
            (ctypes.c_void_p * 1)(ctypes.addressof(buffer)) for buffer in self._parameters
        ]

    def is_busy(self) -> bool:
        """Return True from fill() until the kernel has written its last result."""
        return bool(self._flag.value != self._ticket)

    def cancel(self) -> None:
        """Undo fill(): no kernel was started."""
        self._ticket = self._flag.value

    def fill(self, grid: Grid, frames: Frames | None, device_out: int) -> int:
        """Write a launch's parameters. Return the index of its kernel, by capacity."""
        ticket = self._ticket % 0xFFFFFFFF + 1
        frames_address = self._put_frames(frames) if frames else 0
        key, mode = (frames.key, frames.mode) if frames else (_NO_KEY, 0)
        count = len(grid.lengths)
        flag = self._pinned_on_device
        results = flag + _RESULTS_OFFSET
        shift, head = grid.tiling
        launch = (
            *(self._scratch, self._counters, results, device_out, flag, frames_address),
            *(key, mode, ticket, count, shift, 1, head),
        )
        variant = 0 if count == 1 else 1 if count <= CAPACITIES[1] else 2
        gap = 8 * (CAPACITIES[variant] - count)
        struct.pack_into(
            f"{_LAUNCH}{count}Q{gap}x{count}Q{gap}x{count}I",
            self._parameters[variant],
            0,
            *launch,
            *grid.addresses,
            *grid.lengths,
            *grid.first_tiles,
        )
        self._ticket = ticket
        return variant

    def read_results(self, count: int, nbytes: int) -> list[bytes]:
        """Return the first `nbytes` of each segment's result."""
        result = f"{nbytes}s{RESULT_SIZE - nbytes}x"
        return list(struct.unpack_from(result * count, self._pinned, _RESULTS_OFFSET))

    def _put_frames(self, frames: Frames) -> int:
        """Write the frames to pinned memory, each object once; return their device address."""
        items = frames.items
        # In most lists, all frames are one object.
        is_single = items.count(items[0]) == len(items)
        different = items[:1] if is_single else {id(item): item for item in items}.values()
        packed: dict[int, bytes] = {}
        preimages: list[bytes] = []
        offset = _PREIMAGES_OFFSET
        for item in different:
            preimage, hole = item
            if len(preimage) > MAX_PREIMAGE:
                raise InputValueError(
                    f"a frame on the device must have at most {MAX_PREIMAGE} bytes"
                )
            packed[id(item)] = _FRAME.pack(offset, len(preimage), hole)
            padded = preimage + bytes(-len(preimage) % 16)
            preimages.append(padded)
            offset += len(padded)
        if is_single:
            table = packed[id(items[0])] * len(items)
        else:
            table = b"".join([packed[id(item)] for item in items])
        self._write(_FRAMES_OFFSET, table)
        self._write(_FRAMES_OFFSET + _PREIMAGES_OFFSET, b"".join(preimages))
        return self._pinned_on_device + _FRAMES_OFFSET

    def _write(self, offset: int, content: bytes) -> None:
        self._pinned[offset : offset + len(content)] = content
