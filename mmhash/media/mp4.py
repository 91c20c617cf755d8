"""The index of a plain MP4 or MOV file: one video and its sounds, in the boxes that muxers write.

FFmpeg takes 0.5 ms to open a file after 20 MB were hashed, because it is no longer in the core's
caches; this takes 0.2. It answers only if FFmpeg reads every box in one way and keeps every frame:
other tracks, fragments, edit lists that cut, encryption, cover pictures, damage and unknown boxes
are left to FFmpeg. A test compares both.

NumPy would take twice the time: most of it is code that the caches lack.
"""

import struct
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, chain, repeat
from operator import add, mul, sub
from struct import calcsize, iter_unpack, unpack_from

from mmhash.media.boxes import (
    MAX_ROWS,
    Ints,
    Span,
    children,
    count_rows,
    read_boxes,
    read_runs,
    read_table,
)
from mmhash.media.descriptions import check_sound, read_video_size
from mmhash.media.plain import Buffer, UnusualError, require
from mmhash.media.recipe import VideoIndex

_BRANDS = {b"isom", b"iso2", b"iso4", b"iso5", b"iso6", b"mp41", b"mp42", b"avc1", b"M4V ", b"qt  "}
_GROUPS = {b"sgpd", b"sbgp"}
_TABLES = {*b"stsd stts ctts stss sdtp stsc stsz stco co64".split(), *_GROUPS}
_SOUND_TABLES = _TABLES - {b"ctts", b"stss", b"sdtp"}
_LOCAL_MEDIA = bytes.fromhex("0000000000000001 0000000c 75726c20 00000001")

# As FFmpeg has to read them.
_MAX_TRACKS = 16
_MAX_MOVIE = 32 * MAX_ROWS
_INT_MAX = (1 << 31) - 1


def read_index(source: Buffer) -> VideoIndex | None:
    """Return the index of the video; None if FFmpeg has to read it."""
    try:
        if source[4:8] != b"ftyp":  # of most other files; an exception takes longer
            return None
        start, end = _find_movie(source)
        return _read_movie(bytes(source[start:end]), len(source))
    except (UnusualError, struct.error, LookupError):
        return None


def _find_movie(source: Buffer) -> Span:
    """Return the content of the box of all tables, in a file of that and media data."""
    (first, start, end), *others = read_boxes(source, 0, len(source))
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


def _read_movie(movie: bytes, nbytes: int) -> VideoIndex:
    """Return the index of the only video in the content of a moov box."""
    (first, *header), *tracks = read_boxes(movie, 0, len(movie))
    require(first == b"mvhd")
    scale = _time_scale(movie, (header[0], header[1]), {0: 100, 1: 112})
    if tracks[-1][0] == b"udta":
        _check_tags(movie, tracks.pop()[1:])
    require(len(tracks) <= _MAX_TRACKS)
    videos = []
    for kind, start, end in tracks:
        require(kind == b"trak")
        track = _Track(movie, nbytes, (start, end))
        if track.handler == b"vide":
            videos.append(track)
        else:
            track.check_sound()
    require(len(videos) == 1)
    return videos[0].index(scale)


class _Track:
    """The content of a trak box of a movie."""

    def __init__(self, movie: bytes, nbytes: int, span: Span) -> None:
        self._movie, self._nbytes = movie, nbytes
        track = children(movie, span, iter((b"tkhd", b"edts", b"mdia")))
        require(b"tkhd" in track)
        media = children(movie, track[b"mdia"], iter((b"mdhd", b"hdlr", b"minf")))
        self.handler = self._read_handler(media[b"hdlr"])
        self._scale = _time_scale(movie, media[b"mdhd"], {0: 24, 1: 36})
        self._edits = self._read_edits(track[b"edts"]) if b"edts" in track else []
        self._tables = self._read_tables(media[b"minf"])

    def index(self, movie_scale: int) -> VideoIndex:
        """Return the index of a video, of which FFmpeg keeps all frames."""
        movie, tables = self._movie, self._tables
        width, height = read_video_size(movie, tables[b"stsd"])
        frames = self._count_samples()
        runs, durations = read_runs(movie, tables[b"stts"], "I", frames)
        # Muxers do not know the duration of the last frame.
        require(all(durations[:-1]) and (durations[-1] or runs[-1] == 1 < frames))
        require(max(durations) <= _INT_MAX)
        offsets = None
        if b"ctts" in tables:
            offsets = read_runs(movie, tables[b"ctts"], "i", frames)
        if self._edits:
            start, duration = self._edits[0]
            require(len(self._edits) == 1 and start >= 0)
            end = start + (2 * duration * self._scale + movie_scale) // (2 * movie_scale)
            _check_edit(start, end, (runs, durations), offsets)
        rate = Fraction(self._scale * frames, sum(map(mul, runs, durations)))
        require(max(rate.numerator, rate.denominator) <= _INT_MAX)
        return VideoIndex(frames, rate, width, height)

    def check_sound(self) -> None:
        """Check that FFmpeg reads the track as a sound: nothing of it changes the video."""
        movie, tables = self._movie, self._tables
        require(self.handler == b"soun" and tables.keys() <= _SOUND_TABLES)
        check_sound(movie, tables[b"stsd"])
        # FFmpeg reads no edit list of any track after a track without times.
        count_rows(movie, tables[b"stts"], 8)
        # It can refuse a file of which it reads no sample.
        self._count_samples()

    def _read_handler(self, span: Span) -> bytes:
        content = self._movie[slice(*span)]
        # PyAV refuses names in other encodings.
        require(len(content) >= 24 and content.isascii())
        return content[8:12]

    def _read_edits(self, span: Span) -> list[Span]:
        """Return the time and duration of each edit; a delay has the time -1."""
        start, end = children(self._movie, span, {b"elst"})[b"elst"]
        version, count = unpack_from(">B3xI", self._movie, start)
        form = {0: ">Ii4x", 1: ">qq4x"}[version]
        require(1 <= count <= 2 and end - start == 8 + count * calcsize(form))
        edits = [(time, length) for length, time in iter_unpack(form, self._movie[start + 8 : end])]
        require(all(-1 <= time < 1 << 40 and 0 <= length < 1 << 40 for time, length in edits))
        return edits

    def _read_tables(self, span: Span) -> dict[bytes, Span]:
        """Return the tables of the samples, whose data is in this file."""
        movie = self._movie
        information = children(movie, span, {b"vmhd", b"smhd", b"hdlr", b"dinf", b"stbl"})
        if b"hdlr" in information:  # that of the data, in MOV
            handler = movie[slice(*information[b"hdlr"])]
            require(handler[4:12] in {b"dhlrurl ", b"dhlralis"} and handler.isascii())
        references = children(movie, information[b"dinf"], {b"dref"})
        require(movie[slice(*references[b"dref"])] == _LOCAL_MEDIA)
        tables = children(movie, information[b"stbl"], _TABLES)
        for group in _GROUPS & tables.keys():  # samples before one that is sought
            start, _ = tables[group]
            require(movie[start + 4 : start + 8] == b"roll")
        return tables

    def _count_samples(self) -> int:
        """Return the number of samples, which all are in the file."""
        movie, tables = self._movie, self._tables
        start, end = tables[b"stsz"]
        size, samples = unpack_from(">4x2I", movie, start)
        if size:
            require(0 < samples <= MAX_ROWS and end - start == 12)
        else:
            count_rows(movie, (start, end), 4, header=12)
        if b"stss" in tables:
            count_rows(movie, tables[b"stss"], 4)
        if b"sdtp" in tables:
            require(tables[b"sdtp"][1] - tables[b"sdtp"][0] == 4 + samples)
        kind, form = (b"co64", "Q") if b"co64" in tables else (b"stco", "I")
        require(not {b"co64", b"stco"} <= tables.keys())
        chunks = read_table(movie, tables[kind], form)
        table = read_table(movie, tables[b"stsc"], "I", columns=3)
        first, counts = table[::3], table[1::3]
        runs = tuple(map(sub, (*first[1:], len(chunks) + 1), first))
        require(first[0] == 1 and min(runs) > 0 and min(counts) > 0 and set(table[2::3]) == {1})
        require(sum(map(mul, runs, counts)) == samples)
        self._check_ends(chunks, runs, counts, size)
        return int(samples)

    def _check_ends(self, chunks: Ints, runs: Ints, counts: Ints, size: int) -> None:
        """Check that all chunks end in the file.

        A run has so many chunks of so many samples each (`runs`, `counts`); `size` is that of all
        samples, or 0 if each has its own in the table. The chunks of muxers ascend, and only the
        last few are so near to the end of the file that the sizes of their samples are read: 25 µs
        less with sound. For the others the upper two bytes of all sizes are enough.
        """
        start, end = self._tables[b"stsz"]
        first, second = self._movie[start + 12 : end : 4], self._movie[start + 13 : end : 4]
        require(first == bytes(len(first)) and size < 1 << 24)
        longer = size + 1 if size else max(second.translate(None, b"\0"), default=0) + 1 << 16
        safe = self._nbytes - max(counts) * longer
        number = len(chunks)
        for count in chain.from_iterable(map(repeat, reversed(counts), reversed(runs))):
            offset = chunks[number - 1]
            if offset <= safe:
                break
            number -= 1
            end -= 4 * count
            sizes = (size * count,) if size else unpack_from(f">{count}I", self._movie, end)
            require(offset + sum(sizes) <= self._nbytes)
        require(not number or max(chunks[:number]) <= safe)


def _time_scale(movie: bytes, span: Span, sizes: dict[int, int]) -> int:
    """Return the time scale in a header, whose size depends on its version."""
    version = movie[span[0]]
    require(sizes.get(version) == span[1] - span[0])
    (scale,) = unpack_from(">I", movie, span[0] + (20 if version else 12))
    require(0 < scale <= _INT_MAX)
    return int(scale)


def _check_tags(movie: bytes, span: Span) -> None:
    """Check that the tags of the movie are texts."""
    boxes = read_boxes(movie, *span)
    if boxes[0][0] != b"meta":  # MOV
        for kind, start, end in boxes:
            (size,) = unpack_from(">H", movie, start)
            require(kind[0] == 0xA9 and size == end - start - 4)
            require(size and movie[start + 4 : end].isascii())
        return
    require(len(boxes) == 1)
    _, start, end = boxes[0]
    require(movie[start : start + 4] == bytes(4))
    meta = children(movie, (start + 4, end), iter((b"hdlr", b"ilst")))
    handler = meta[b"hdlr"][0]
    require(movie[handler + 8 : handler + 12] == b"mdir")
    for kind, start, end in read_boxes(movie, *meta[b"ilst"]):
        size, name, form = unpack_from(">I4sI", movie, start)
        require(kind[0] == 0xA9 and (size, name, form) == (end - start, b"data", 1))
        require(size >= 16 and movie[start:end].isascii())


def _expand(runs: Ints, values: Ints) -> Sequence[int]:
    """Return the value of each member of the runs."""
    if len(runs) == sum(runs):
        return values
    return list(chain.from_iterable(map(mul, zip(values), runs)))  # as (value,) * run


def _check_edit(
    start: int, end: int, durations: tuple[Ints, Ints], offsets: tuple[Ints, Ints] | None
) -> None:
    """Check that FFmpeg starts at the first frame and keeps all, by the runs of two tables.

    It starts at a keyframe that is shown when the edit starts, and ends after the second
    keyframe that is shown until the edit ends or longer.
    """
    lengths, (step, *others) = durations
    shown: Sequence[int] = range(0, sum(lengths) * step, step)
    if others:
        each = _expand(lengths, (step, *others))
        shown = list(accumulate(each[:-1], initial=0))
    if offsets:
        require(min(offsets[1]) >= -1 << 28 and max(offsets[1]) <= 1 << 28)
        shown = list(map(add, shown, _expand(*offsets)))
    in_order = sorted(shown)
    require(start <= shown[0] == in_order[0] and in_order[-1] < end)
    if len(in_order) > 1:
        # Frames of one duration, as most are, end in the order in which they start: 15 µs less.
        until = sorted(map(add, shown, each))[-2] if others else in_order[-2] + step
        require(in_order[0] < in_order[1] and until < end)
