"""The length of a WAV file, read from its header."""

import struct

from mmhash.errors import InputValueError

RATE = 16_000
"""The sampling rate of the processors. A clip at another rate is resampled to an unknown length."""

# A file of nothing but empty chunks would take seconds to read.
_MAX_CHUNKS = 1000

_FORMATS = {1, 3, 0xFFFE}  # PCM, floats, and either with more details


def read_samples(data: bytes | bytearray | memoryview) -> int:
    """Return the number of samples of each channel, at 16 kHz."""
    view = memoryview(data).cast("B")
    if bytes(view[:4]) != b"RIFF" or bytes(view[8:12]) != b"WAVE":
        raise InputValueError("the clip is not a WAV file")
    frame = chunks = 0
    position = 12
    while position + 8 <= len(view):
        chunks += 1
        if chunks > _MAX_CHUNKS:
            raise InputValueError(f"the WAV file has more than {_MAX_CHUNKS} chunks")
        name, size = struct.unpack_from("<4sL", view, position)
        position += 8
        if position + size > len(view):
            break
        if name == b"fmt " and size >= 16:
            kind, _, rate, _, frame = struct.unpack_from("<HHLLH", view, position)
            if kind not in _FORMATS or rate != RATE or not frame:
                raise InputValueError(f"the clip must be uncompressed at {RATE} Hz, not {rate}")
        elif name == b"data" and frame:
            return int(size // frame)
        position += size + size % 2
    raise InputValueError("the WAV file is truncated")
