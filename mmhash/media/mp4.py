"""The index of a plain MP4 or MOV file: one video track, in the boxes that muxers write.

FFmpeg takes 0.5 ms to open a file after 20 MB were hashed, because it is no longer in the core's
caches; this takes 0.2. It answers only if FFmpeg reads every box in one way and keeps every frame:
tracks beside the video, fragments, edit lists that cut, encryption, cover pictures, damage and
unknown boxes are left to FFmpeg. A test compares both.

NumPy would take twice the time: most of it is code that the caches lack.
"""

import struct
from collections.abc import Container, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, chain, repeat
from operator import add, mul, sub
from struct import calcsize, unpack_from

from mmhash.media.plain import Buffer, UnusualError, require
from mmhash.media.recipe import VideoIndex

# The configuration that each kind of sample has.
_CODECS = {
    b"avc1": b"avcC",
    b"hvc1": b"hvcC",
    b"hev1": b"hvcC",
    b"av01": b"av1C",
    b"vp09": b"vpcC",
}
_BRANDS = {b"isom", b"iso2", b"iso4", b"iso5", b"iso6", b"mp41", b"mp42", b"avc1", b"M4V ", b"qt  "}
_TABLES = {b"stsd", b"stts", b"ctts", b"stss", b"sdtp", b"stsc", b"stsz", b"stco", b"co64"}
_LOCAL_MEDIA = bytes.fromhex("0000000000000001 0000000c 75726c20 00000001")

# Of each level. A film has three at the top, and a track ten.
_MAX_BOXES = 32
# More than an hour at 30 frames per second; of longer films, hashing takes almost all the time.
_MAX_FRAMES = 1 << 17
_MAX_MOVIE = 32 * _MAX_FRAMES
_MAX_CONFIGURATION = 1 << 16
_INT_MAX = (1 << 31) - 1

_Span = tuple[int, int]
"""The start and end of a box's content."""

_Ints = tuple[int, ...]
_Kinds = Container[bytes] | Iterator[bytes]


def read_index(source: Buffer) -> VideoIndex | None:
    """Return the index of the video; None if FFmpeg has to read it."""
    try:
        if source[4:8] != b"ftyp":  # of most other files; an exception takes longer
            return None
        start, end = _find_movie(source)
        return _Movie(bytes(source[start:end]), len(source)).index()
    except (UnusualError, struct.error, LookupError):
        return None


def _find_movie(source: Buffer) -> _Span:
    """Return the content of the box of all tables, in a file of that and media data."""
    (first, start, end), *others = _boxes(source, 0, len(source))
    require(first == b"ftyp" and 8 <= end - start <= 256)
    brands = bytes(source[start:end])
    # FFmpeg guesses the format by these bytes, and looks for MPEG-PS in MOV there.
    require(brands[:4] in _BRANDS and brands.isascii() and b"mhlrMPEG" not in source[:2048])
    kinds = [kind for kind, _, _ in others]
    require(kinds.count(b"moov") == 1 and set(kinds) <= {b"moov", b"mdat", b"free", b"wide"})
    # FFmpeg looks for media data in this one, unless it is empty.
    require(all(start == end for kind, start, end in others if kind == b"wide"))
    _, start, end = others[kinds.index(b"moov")]
    require(end - start <= _MAX_MOVIE)
    return start, end


def _boxes(data: Buffer, start: int, end: int) -> list[tuple[bytes, int, int]]:
    """Return the kind and content of the boxes that fill the bytes from `start` to `end`."""
    boxes: list[tuple[bytes, int, int]] = []
    while start < end:
        size, kind = unpack_from(">I4s", data, start)
        header = 8
        if size == 1:
            (size,) = unpack_from(">Q", data, start + 8)
            header = 16
        require(header <= size <= end - start and len(boxes) < _MAX_BOXES)
        boxes.append((kind, start + header, start + size))
        start += size
    require(boxes)
    return boxes


class _Movie:
    """The content of a moov box."""

    def __init__(self, data: bytes, nbytes: int) -> None:
        self._data = data
        self._nbytes = nbytes

    def index(self) -> VideoIndex:
        """Return the index of the video."""
        movie = self._children((0, len(self._data)), iter((b"mvhd", b"trak", b"udta")))
        if b"udta" in movie:
            self._check_tags(movie[b"udta"])
        track = self._children(movie[b"trak"], iter((b"tkhd", b"edts", b"mdia")))
        require(b"tkhd" in track)
        media = self._children(track[b"mdia"], iter((b"mdhd", b"hdlr", b"minf")))
        self._check_handler(media[b"hdlr"])
        tables = self._tables(media[b"minf"])
        width, height = self._size(tables[b"stsd"])
        frames = self._check_samples(tables)
        runs, durations = self._runs(tables[b"stts"], "I", frames)
        # Muxers do not know the duration of the last frame.
        require(all(durations[:-1]) and (durations[-1] or runs[-1] == 1 < frames))
        require(max(durations) <= _INT_MAX)
        offsets = self._runs(tables[b"ctts"], "i", frames) if b"ctts" in tables else None
        scale = self._time_scale(media[b"mdhd"], {0: 24, 1: 36})
        if b"edts" in track:
            start, duration = self._edit(track[b"edts"])
            movie_scale = self._time_scale(movie[b"mvhd"], {0: 100, 1: 112})
            end = start + (2 * duration * scale + movie_scale) // (2 * movie_scale)
            _check_edit(start, end, _expand(runs, durations), offsets and _expand(*offsets))
        rate = Fraction(scale * frames, sum(map(mul, runs, durations)))
        require(max(rate.numerator, rate.denominator) <= _INT_MAX)
        return VideoIndex(frames, rate, width, height)

    def _children(
        self, span: _Span, kinds: Container[bytes] | Iterator[bytes]
    ) -> dict[bytes, _Span]:
        """Return the boxes in a box, all of other kinds; of an iterator, in its order."""
        boxes = _boxes(self._data, *span)
        children = {kind: (start, end) for kind, start, end in boxes if kind in kinds}
        require(len(children) == len(boxes))
        return children

    def _time_scale(self, span: _Span, sizes: dict[int, int]) -> int:
        version = self._data[span[0]]
        require(sizes.get(version) == span[1] - span[0])
        (scale,) = unpack_from(">I", self._data, span[0] + (20 if version else 12))
        require(0 < scale <= _INT_MAX)
        return int(scale)

    def _check_handler(self, span: _Span) -> None:
        content = self._data[slice(*span)]
        # PyAV refuses names in other encodings.
        require(len(content) >= 24 and content[8:12] == b"vide" and content.isascii())

    def _tables(self, span: _Span) -> dict[bytes, _Span]:
        information = self._children(span, {b"vmhd", b"hdlr", b"dinf", b"stbl"})
        if b"hdlr" in information:  # that of the data, in MOV
            handler = self._data[slice(*information[b"hdlr"])]
            require(handler[4:12] in {b"dhlrurl ", b"dhlralis"} and handler.isascii())
        references = self._children(information[b"dinf"], {b"dref"})
        require(self._data[slice(*references[b"dref"])] == _LOCAL_MEDIA)
        return self._children(information[b"stbl"], _TABLES)

    def _size(self, span: _Span) -> tuple[int, int]:
        """Return the width and height in the only description of the samples."""
        start, end = span
        count, size, kind = unpack_from(">4xII4s", self._data, start)
        require(count == 1 and size == end - start - 8 and kind in _CODECS)
        entry = self._data[start + 8 : end]
        # A name that FFmpeg reads as another codec; a palette.
        require(entry[51:57] != b"Planar" and entry[82:86] == b"\0\x18\xff\xff")
        (first, inner, inner_end), *others = _boxes(entry, 86, len(entry))
        require(first == _CODECS[kind] and entry[inner] in {0x01, 0x81})
        require(8 <= inner_end - inner < _MAX_CONFIGURATION)
        if first == b"vpcC":  # its end is the length of what may follow
            require(inner_end - inner == 12 and entry[inner + 10 : inner_end] == bytes(2))
        for other, inner, inner_end in others:
            if other == b"colr":
                require(entry[inner : inner + 4] in {b"nclx", b"nclc"} and inner_end - inner >= 10)
            else:
                require(other in {b"pasp", b"btrt", b"fiel"} and inner_end - inner >= 2)
        width, height = unpack_from(">2H", entry, 32)
        require(width and height)
        return width, height

    def _check_samples(self, tables: dict[bytes, _Span]) -> int:
        """Return the number of samples, which all are in the file."""
        sizes = self._table(tables[b"stsz"], "I", header=12)
        require(unpack_from(">I", self._data, tables[b"stsz"][0] + 4) == (0,))
        if b"stss" in tables:
            self._table(tables[b"stss"], "I")
        if b"sdtp" in tables:
            require(tables[b"sdtp"][1] - tables[b"sdtp"][0] == 4 + len(sizes))
        kind, form = (b"co64", "Q") if b"co64" in tables else (b"stco", "I")
        chunks = self._table(tables.pop(kind), form)
        require({b"co64", b"stco"}.isdisjoint(tables))
        table = self._table(tables[b"stsc"], "I", columns=3)
        first, samples = table[::3], table[1::3]
        runs = list(map(sub, (*first[1:], len(chunks) + 1), first))
        require(first[0] == 1 and min(runs) > 0 and min(samples) > 0 and set(table[2::3]) == {1})
        require(sum(map(mul, runs, samples)) == len(sizes) and max(sizes) < 1 << 30)
        sums = list(accumulate(sizes, initial=0))
        ends = [sums[number] for number in accumulate(_expand(runs, samples))]
        require(max(map(add, chunks, map(sub, ends, [0, *ends]))) <= self._nbytes)
        return len(sizes)

    def _edit(self, span: _Span) -> _Span:
        """Return the time and duration of the only edit."""
        start, end = self._children(span, {b"elst"})[b"elst"]
        version, count = unpack_from(">B3xI", self._data, start)
        form = {0: ">Ii", 1: ">qq"}[version]
        require(count == 1 and end - start == 8 + calcsize(form) + 4)
        duration, time = unpack_from(form, self._data, start + 8)
        require(0 <= time < 1 << 40 and 0 <= duration < 1 << 40)
        return time, duration

    def _runs(self, span: _Span, form: str, frames: int) -> tuple[_Ints, _Ints]:
        """Return the length of each run of a table of runs, and its value."""
        table = self._table(span, form, columns=2)
        lengths, values = table[::2], table[1::2]
        require(min(lengths) > 0 and sum(lengths) == frames)
        return lengths, values

    def _table(self, span: _Span, form: str, *, columns: int = 1, header: int = 8) -> _Ints:
        """Return the numbers of a table; that of its rows is at the end of its header."""
        start, end = span
        (rows,) = unpack_from(">I", self._data, start + header - 4)
        numbers = f">{rows * columns}{form}"
        require(0 < rows <= _MAX_FRAMES and end - start == header + calcsize(numbers))
        return unpack_from(numbers, self._data, start + header)

    def _check_tags(self, span: _Span) -> None:
        """Check that the tags of the movie are texts."""
        boxes = _boxes(self._data, *span)
        if boxes[0][0] != b"meta":  # MOV
            for kind, start, end in boxes:
                (size,) = unpack_from(">H", self._data, start)
                require(kind[0] == 0xA9 and size == end - start - 4)
                require(size and self._data[start + 4 : end].isascii())
            return
        require(len(boxes) == 1)
        _, start, end = boxes[0]
        require(self._data[start : start + 4] == bytes(4))
        meta = self._children((start + 4, end), iter((b"hdlr", b"ilst")))
        handler = meta[b"hdlr"][0]
        require(self._data[handler + 8 : handler + 12] == b"mdir")
        for kind, start, end in _boxes(self._data, *meta[b"ilst"]):
            size, name, form = unpack_from(">I4sI", self._data, start)
            require(kind[0] == 0xA9 and (size, name, form) == (end - start, b"data", 1))
            require(size >= 16 and self._data[start:end].isascii())


def _expand(runs: Iterable[int], values: Iterable[int]) -> list[int]:
    return list(chain.from_iterable(map(repeat, values, runs)))


def _check_edit(
    start: int, end: int, durations: Sequence[int], offsets: Sequence[int] | None
) -> None:
    """Check that FFmpeg starts at the first frame and keeps all.

    It starts at a keyframe that is shown when the edit starts, and ends after the second
    keyframe that is shown until the edit ends or longer.
    """
    shown = list(accumulate(durations, initial=0))
    shown.pop()
    if offsets:
        require(max(map(abs, offsets)) <= 1 << 28)
        shown = list(map(add, shown, offsets))
    require(start <= shown[0] and max(shown) < end and shown.count(shown[0]) == 1)
    require(min(shown) == shown[0])
    until = map(add, shown[:-1], durations)
    require(sum(map(end.__le__, until)) <= 1)
