"""The index of a Matroska or WebM file, by its headers and those of its blocks.

FFmpeg copies each packet twice to count it. That takes 3 ms for a video of 20 MB, and a walk over
the headers 0.1 ms. To open a file takes FFmpeg 0.5 ms more after 20 MB were hashed, because it is
no longer in the core's caches: a file with one video and with the elements that muxers write is
not opened. Files of another structure are left to FFmpeg. A test compares both.
"""

import struct
from collections.abc import Iterator
from struct import unpack_from
from typing import Any

from mmhash.media.matroska_headers import (
    CHECKSUM,
    CODEC,
    ENCODINGS,
    FILES,
    HEADERS,
    NUMBER,
    REPEATED,
    SEEK,
    SEEK_HEAD,
    SEEK_ID,
    SEEK_POSITION,
    TAGS,
    TRACK,
    TRACKS,
    TYPE,
    VIDEO,
    VIDEO_CODECS,
    VOID,
    Schema,
    read_value,
    read_video,
)
from mmhash.media.plain import Buffer, UnusualError, require
from mmhash.media.recipe import VideoIndex

_EBML, _SEGMENT, _CLUSTER, _CUES = 0x1A45DFA3, 0x18538067, 0x1F43B675, 0x1C53BB6B
_SIMPLE_BLOCK, _BLOCK_GROUP, _BLOCK, _ENCRYPTED_BLOCK = 0xA3, 0xA0, 0xA1, 0xAF

# A time, a position, the size of the cluster before and a checksum.
_CLUSTER_FIELDS = {0xE7, 0xA7, 0xAB, CHECKSUM}
# The id of an element of one byte, and the bytes that start with its size.
_read_head = struct.Struct(">BI").unpack_from
# The size that stands for an unknown one, by its length.
_SIZES = (0, 0x7F, 0x3FFF, 0x1FFFFF, 0xFFFFFFF)

_LACING = 0x06

# An element takes 0.8 µs; a film of two hours has half of them.
_MAX_ELEMENTS = 1 << 20

_Element = tuple[int, int, int]
"""The id of an element, and the start and end of its content."""


def count_frames(source: Buffer) -> int | None:
    """Return the number of frames of the first video track; None if FFmpeg has to count them."""
    try:
        return _Walk(source).count()
    except (UnusualError, LookupError, struct.error):
        return None


def read_index(source: Buffer) -> VideoIndex | None:
    """Return the index of the only video; None if FFmpeg has to read it."""
    try:
        return _Walk(source).index()
    except (UnusualError, LookupError, struct.error):
        return None


class _Walk:
    """One walk over a file."""

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._left = _MAX_ELEMENTS

    def count(self) -> int | None:
        """Return the number of blocks of the first video track."""
        track: int | None = None
        frames = 0
        for ident, start, end in self._elements(*self._segment()):
            if ident == TRACKS and track is None:
                track = self._first_video(start, end)
            elif ident == _CLUSTER and track is not None:
                frames += self._blocks(start, end).count(track)
            elif ident in {TRACKS, _CLUSTER}:
                raise UnusualError
        return frames or None

    def index(self) -> VideoIndex:
        """Return the index of the only video."""
        require(unpack_from(">I", self._data) == (_EBML,))  # most files are not Matroska
        origin, end = start, _ = self._segment(FILES)
        headers: dict[int, Any] = {}
        places = set()
        blocks: list[int] = []
        for ident, inner, inner_end in self._elements(origin, end):
            places.add((ident, start - origin))
            start = inner_end
            if ident == _CLUSTER:
                blocks += self._blocks(inner, inner_end)
            elif ident in HEADERS:
                require(ident not in headers and (ident == TAGS or not blocks))
                headers[ident] = self._contents(inner, inner_end, HEADERS[ident])
            else:
                require(ident == VOID or (ident == _CUES and blocks))
        # FFmpeg reads what these name, wherever that is.
        for seek in headers.get(SEEK_HEAD, {}).get(SEEK, ()):
            require((seek[SEEK_ID], seek[SEEK_POSITION]) in places)
        return read_video(headers[TRACKS][TRACK], blocks)

    def _segment(self, files: set[bytes] | None = None) -> tuple[int, int]:
        """Return the content of the segment; only a header is before it."""
        top = list(self._elements(0, len(self._data)))
        require([ident for ident, _, _ in top] == [_EBML, _SEGMENT])
        require(files is None or bytes(self._data[slice(*top[0][1:])]) in files)
        return top[1][1:]

    def _contents(self, start: int, end: int, schema: Schema) -> dict[int, Any]:
        """Return the elements in an element of a header, of which all are known."""
        contents: dict[int, Any] = {}
        for ident, inner, inner_end in self._elements(start, end):
            checksum = ident == CHECKSUM and (inner, inner_end) == (start + 2, start + 6)
            if ident == VOID or checksum:
                continue
            kind = schema[ident]
            if isinstance(kind, dict):
                value: Any = self._contents(inner, inner_end, kind)
            else:
                value = read_value(bytes(self._data[inner:inner_end]), kind)
            if ident in REPEATED:
                contents.setdefault(ident, []).append(value)
            else:
                require(ident not in contents)
                contents[ident] = value
        return contents

    def _first_video(self, start: int, end: int) -> int:
        for ident, inner, inner_end in self._elements(start, end):
            if ident == TRACK:
                members = {kind: (at, to) for kind, at, to in self._elements(inner, inner_end)}
                if self._integer(members[TYPE]) == VIDEO:
                    at, to = members[CODEC]
                    if bytes(self._data[at:to]) not in VIDEO_CODECS or ENCODINGS in members:
                        break
                    return self._integer(members[NUMBER])
        raise UnusualError

    def _blocks(self, start: int, end: int) -> list[int]:
        """Return the track of each block of a cluster."""
        tracks, start = self._simple_blocks(start, end)
        for ident, at, to in self._elements(start, end):
            if ident == _SIMPLE_BLOCK:
                tracks.append(self._track_of(at, to))
            elif ident == _BLOCK_GROUP:
                blocks = [each for each in self._elements(at, to) if each[0] == _BLOCK]
                if len(blocks) != 1:
                    raise UnusualError
                tracks.append(self._track_of(*blocks[0][1:]))
            elif ident == _ENCRYPTED_BLOCK:
                raise UnusualError
        return tracks

    def _simple_blocks(self, start: int, end: int) -> tuple[list[int], int]:
        """Return the tracks of the first blocks of a cluster, and the end of these.

        They have a size of up to four bytes and a track of one. In the other way a block takes
        1.1 µs instead of 0.4, and twice that with cold caches.
        """
        tracks = []
        data, left = self._data, self._left
        while start + 9 <= end and left:
            left -= 1
            ident, head = _read_head(data, start)
            width = 33 - head.bit_length()
            if width > 4 or (ident != _SIMPLE_BLOCK and ident not in _CLUSTER_FIELDS):
                break
            content = start + 1 + width
            size = head >> 32 - 8 * width & _SIZES[width]
            if size == _SIZES[width] or size > end - content:
                raise UnusualError
            if ident == _SIMPLE_BLOCK:
                track = data[content]
                if not 0x80 <= track < 0xFF or size <= 4 or data[content + 3] & _LACING:
                    break
                tracks.append(track - 0x80)
            start = content + size
        self._left = left
        return tracks, start

    def _track_of(self, start: int, end: int) -> int:
        track, start = self._number(start)
        flags = self._data[start + 2]
        if flags & _LACING or start + 3 >= end:
            raise UnusualError
        return track

    def _elements(self, start: int, end: int) -> Iterator[_Element]:
        data = self._data
        while start < end:
            self._left -= 1
            ident, width = data[start], 1
            if ident < 0x80:
                width = _width(ident)
                ident = int.from_bytes(data[start : start + width])
            start += width
            size = data[start] - 0x80
            if 0 <= size < 0x7F:  # most are short
                start += 1
            else:
                size, start = self._number(start)
            if self._left < 0 or start + size > end:
                raise UnusualError
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
            raise UnusualError
        return value, start + width

    def _integer(self, element: tuple[int, int]) -> int:
        return int.from_bytes(self._data[element[0] : element[1]])


def _width(first: int) -> int:
    """Return the length of a number by its first byte."""
    if first == 0:
        raise UnusualError
    return 9 - first.bit_length()
