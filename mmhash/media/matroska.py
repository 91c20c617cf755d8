"""The index of a Matroska or WebM file, by its headers and those of its blocks.

FFmpeg copies each packet twice to count it. That takes 3 ms for a video of 20 MB, and a walk over
the headers 0.1 ms. To open a file takes FFmpeg 0.5 ms more after 20 MB were hashed, because it is
no longer in the core's caches: a file with one video and with the elements that muxers write is
not opened. Files of another structure are left to FFmpeg. A test compares both.
"""

import struct
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from mmhash.media.matroska_headers import (
    CHECKSUM,
    CODEC,
    ENCODINGS,
    FILES,
    HEADERS,
    MAX_NUMBER,
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
_SIMPLE_BLOCK, _BLOCK_GROUP, _BLOCK = 0xA3, 0xA0, 0xA1

# A time, a position, the size of the cluster before and a checksum.
_CLUSTER_FIELDS = {0xE7, 0xA7, 0xAB, CHECKSUM}
_MAX_FIELD = 8
_read_ident = struct.Struct(">I").unpack_from
# The first eight bytes of a block: its id, two bytes of its size, and each of the next.
_read_head = struct.Struct(">BH5B").unpack_from

# The first byte of a block whose track has one byte.
_TRACKS = bytes(range(0x80, 0x80 + MAX_NUMBER + 1))
_LACING = 0x06

# An element takes 0.8 µs; a film of two hours has half of them.
_MAX_ELEMENTS = 1 << 20
# Of an element of headers: the text of tags is the longest.
_MAX_HEADER = 1 << 18

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
        self._tracks = bytearray()
        """The first byte of each block: its track, with 0x80."""

    def count(self) -> int | None:
        """Return the number of blocks of the first video track."""
        track: int | None = None
        for ident, start, end in self._elements(*self._segment()):
            if ident == TRACKS and track is None:
                track = self._first_video(start, end)
            elif ident == _CLUSTER and track is not None:
                self._walk_cluster(start, end)
            elif ident in {TRACKS, _CLUSTER}:
                raise UnusualError
        if track is None or track > MAX_NUMBER:
            return None
        require(not self._tracks.translate(None, _TRACKS))  # all have one byte
        return self._tracks.count(0x80 + track) or None

    def index(self) -> VideoIndex:
        """Return the index of the only video."""
        origin, end = start, _ = self._segment(FILES)
        headers: dict[int, Any] = {}
        places: dict[int, int] = {}
        blocks = self._tracks
        for ident, inner, inner_end in self._elements(origin, end):
            places[start - origin] = ident
            start = inner_end
            if ident == _CLUSTER:
                self._walk_cluster(inner, inner_end)
            elif ident in HEADERS:
                require(ident not in headers and (ident == TAGS or not blocks))
                require(inner_end - inner <= _MAX_HEADER)
                header = bytes(self._data[inner:inner_end])
                headers[ident] = _contents(header, 0, len(header), HEADERS[ident])
            else:
                require(ident == VOID or (ident == _CUES and blocks))
        # FFmpeg reads what these name, wherever that is.
        for seek in headers.get(SEEK_HEAD, {}).get(SEEK, ()):
            require(places.get(seek[SEEK_POSITION]) == seek[SEEK_ID])
        return read_video(headers[TRACKS][TRACK], blocks)

    def _segment(self, files: set[bytes] | None = None) -> tuple[int, int]:
        """Return the content of the segment; only a header is before it."""
        data = self._data
        require(_read_ident(data) == (_EBML,))  # most files are not Matroska
        size, start = _read_number(data, 4)
        require(files is None or bytes(data[start : start + size]) in files)
        require(_read_ident(data, start + size) == (_SEGMENT,))
        size, start = _read_number(data, start + size + 4)
        require(start + size == len(data))
        return start, start + size

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

    def _walk_cluster(self, start: int, end: int) -> None:
        """Add the tracks of the blocks of a cluster."""
        start = self._walk_simple_blocks(start, end)
        for ident, at, to in self._elements(start, end):
            if ident == _SIMPLE_BLOCK:
                self._add_block(at, to)
            elif ident == _BLOCK_GROUP:
                blocks = [each for each in self._elements(at, to) if each[0] == _BLOCK]
                if len(blocks) != 1:
                    raise UnusualError
                self._add_block(*blocks[0][1:])
            elif ident != VOID and (ident not in _CLUSTER_FIELDS or to - at > _MAX_FIELD):
                raise UnusualError  # FFmpeg can look for the next cluster then

    def _add_block(self, start: int, end: int) -> None:
        if self._data[start + 3] & _LACING or start + 4 >= end:
            raise UnusualError
        self._tracks.append(self._data[start])

    def _walk_simple_blocks(self, start: int, end: int) -> int:
        """Add the tracks of the first blocks of a cluster, and return their end.

        They have a size of up to three bytes, and one call reads all that is needed of a block:
        that takes 0.2 µs, where a call for each number took 0.4 and `_elements` takes 1.1. The
        caches lack the headers of blocks too: 0.4 µs for one of a frame of 128 kB.
        """
        data, last = self._data, end - 8
        add, before = self._tracks.append, len(self._tracks)
        fields = flags = 0
        for _ in repeat(None, self._left):
            if start > last:
                break
            ident, size, third, fourth, fifth, sixth, seventh = _read_head(data, start)
            if ident == _SIMPLE_BLOCK:
                if 0x4005 <= size < 0x7FFF:  # of two bytes; then track, time and flags
                    add(third)
                    flags |= sixth
                    start += size - 0x3FFD
                elif 0x2001 <= size < 0x3FFF:  # of three
                    add(fourth)
                    flags |= seventh
                    start += 4 + ((size & 0x1FFF) << 8 | third)
                elif 0x8500 <= size < 0xFF00:  # of one
                    add(size & 0xFF)
                    flags |= fifth
                    start += (size >> 8) - 0x7E
                else:
                    break
            elif ident in _CLUSTER_FIELDS and 0x8000 <= size < 0x8000 + (_MAX_FIELD + 1 << 8):
                fields += 1
                start += (size >> 8) - 0x7E
            else:
                break
        if start > end or flags & _LACING:
            raise UnusualError
        self._left -= len(self._tracks) - before + fields
        return start

    def _elements(self, start: int, end: int) -> Iterator[_Element]:
        data = self._data
        while start < end:
            self._left -= 1
            ident, width = data[start], 1
            if 0x10 <= ident < 0x20:  # of those at the top
                (ident,) = _read_ident(data, start)
                width = 4
            elif ident < 0x80:
                width = _width(ident)
                ident = int.from_bytes(data[start : start + width])
            start += width
            size = data[start] - 0x80
            if 0 <= size < 0x7F:  # most are short
                start += 1
            else:
                size, start = _read_number(data, start)
            if self._left < 0 or start + size > end:
                raise UnusualError
            yield ident, start, start + size
            start += size

    def _integer(self, element: tuple[int, int]) -> int:
        return int.from_bytes(self._data[element[0] : element[1]])


def _contents(header: bytes, start: int, end: int, schema: Schema) -> dict[int, Any]:
    """Return the elements in an element of a header, of which all are known.

    An element takes 0.2 µs, where a generator of elements took 0.4.
    """
    contents: dict[int, Any] = {}
    first = start
    while start < end:
        ident = header[start]
        if ident >= 0x80:
            start += 1
        elif ident >= 0x40:
            ident = ident << 8 | header[start + 1]
            start += 2
        else:
            width = _width(ident)
            ident = int.from_bytes(header[start : start + width])
            start += width
        size = header[start] - 0x80
        start += 1
        if not 0 <= size < 0x7F:  # most are short
            size, start = _read_number(header, start - 1)
        inner, start = start, start + size
        kind = schema.get(ident)
        if kind is None:
            require(ident == VOID or (ident == CHECKSUM and (inner, size) == (first + 2, 4)))
            continue
        if start > end or (ident in contents and ident not in REPEATED):
            raise UnusualError
        if kind == "number":
            if not 1 <= size <= 8:
                raise UnusualError
            contents[ident] = int.from_bytes(header[inner:start])
        elif kind.__class__ is not dict:
            contents[ident] = read_value(header[inner:start], kind)
        elif ident in REPEATED:
            contents.setdefault(ident, []).append(_contents(header, inner, start, kind))
        else:
            contents[ident] = _contents(header, inner, start, kind)
    require(start == end)
    return contents


def _read_number(data: Buffer, start: int) -> tuple[int, int]:
    """Return a number of variable length, and the position after it."""
    first = data[start]
    if 0x80 <= first < 0xFF:  # most numbers are short
        return first - 0x80, start + 1
    width = _width(first)
    largest = (1 << 7 * width) - 1
    value = int.from_bytes(data[start : start + width]) & largest
    if value == largest:  # a size that is not known
        raise UnusualError
    return value, start + width


def _width(first: int) -> int:
    """Return the length of a number by its first byte."""
    if first == 0:
        raise UnusualError
    return 9 - first.bit_length()
