"""The number of frames in a Matroska or WebM file, by the headers of its blocks.

FFmpeg copies each packet twice to count it. That takes 3 ms for a video of 20 MB, and a walk over
the headers 0.2 ms. Files of another structure than muxers write are left to FFmpeg.
"""

import mmap
from collections.abc import Iterator

_EBML, _SEGMENT, _TRACKS, _CLUSTER = 0x1A45DFA3, 0x18538067, 0x1654AE6B, 0x1F43B675
_TRACK, _NUMBER, _TYPE, _CODEC, _ENCODINGS = 0xAE, 0xD7, 0x83, 0x86, 0x6D80
_SIMPLE_BLOCK, _BLOCK_GROUP, _BLOCK, _ENCRYPTED_BLOCK = 0xA3, 0xA0, 0xA1, 0xAF

_VIDEO = 1
_LACING = 0x06
# FFmpeg returns a packet for each block of these.
_CODECS = {b"V_MPEG4/ISO/AVC", b"V_MPEGH/ISO/HEVC", b"V_VP8", b"V_VP9", b"V_AV1"}

# An element takes 0.8 µs; a film of two hours has half of them.
_MAX_ELEMENTS = 1 << 20

Buffer = bytes | bytearray | memoryview | mmap.mmap

_Element = tuple[int, int, int]
"""The id of an element, and the start and end of its content."""


class _UnusualError(Exception):
    """The file has a structure that is not counted here."""


def count_frames(source: Buffer) -> int | None:
    """Return the number of frames of the first video track; None if FFmpeg has to count them."""
    try:
        return _Walk(source).count()
    except (_UnusualError, IndexError, KeyError):
        return None


class _Walk:
    """One walk over a file."""

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._left = _MAX_ELEMENTS

    def count(self) -> int | None:
        """Return the number of blocks of the first video track."""
        top = list(self._elements(0, len(self._data)))
        if [ident for ident, _, _ in top] != [_EBML, _SEGMENT]:
            raise _UnusualError
        track: int | None = None
        frames = 0
        for ident, start, end in self._elements(*top[1][1:]):
            if ident == _TRACKS and track is None:
                track = self._first_video(start, end)
            elif ident == _CLUSTER and track is not None:
                frames += self._blocks(start, end).count(track)
            elif ident in {_TRACKS, _CLUSTER}:
                raise _UnusualError
        return frames or None

    def _first_video(self, start: int, end: int) -> int:
        for ident, inner, inner_end in self._elements(start, end):
            if ident == _TRACK:
                members = {kind: (at, to) for kind, at, to in self._elements(inner, inner_end)}
                if self._integer(members[_TYPE]) == _VIDEO:
                    at, to = members[_CODEC]
                    if bytes(self._data[at:to]) not in _CODECS or _ENCODINGS in members:
                        break
                    return self._integer(members[_NUMBER])
        raise _UnusualError

    def _blocks(self, start: int, end: int) -> list[int]:
        """Return the track of each block of a cluster."""
        tracks = []
        for ident, at, to in self._elements(start, end):
            if ident == _SIMPLE_BLOCK:
                tracks.append(self._track_of(at, to))
            elif ident == _BLOCK_GROUP:
                blocks = [each for each in self._elements(at, to) if each[0] == _BLOCK]
                if len(blocks) != 1:
                    raise _UnusualError
                tracks.append(self._track_of(*blocks[0][1:]))
            elif ident == _ENCRYPTED_BLOCK:
                raise _UnusualError
        return tracks

    def _track_of(self, start: int, end: int) -> int:
        track, start = self._number(start)
        flags = self._data[start + 2]
        if flags & _LACING or start + 3 >= end:
            raise _UnusualError
        return track

    def _elements(self, start: int, end: int) -> Iterator[_Element]:
        while start < end:
            self._left -= 1
            ident = self._data[start]
            if (width := _width(ident)) > 1:
                ident = int.from_bytes(self._data[start : start + width])
            size, start = self._number(start + width)
            if self._left < 0 or start + size > end:
                raise _UnusualError
            yield ident, start, start + size
            start += size

    def _number(self, start: int) -> tuple[int, int]:
        """Return a number of variable length, and the position after it."""
        first = self._data[start]
        if 0x80 <= first < 0xFF:  # most numbers are short
            return first - 0x80, start + 1
        width = _width(first)
        largest = (1 << 7 * width) - 1
        value = int.from_bytes(self._data[start : start + width]) & largest
        if value == largest:  # a size that is not known
            raise _UnusualError
        return value, start + width

    def _integer(self, element: tuple[int, int]) -> int:
        return int.from_bytes(self._data[element[0] : element[1]])


def _width(first: int) -> int:
    """Return the length of a number by its first byte."""
    if first == 0:
        raise _UnusualError
    return 9 - first.bit_length()
