"""The reader of plain MP4 files answers as FFmpeg does, or leaves the file to it."""

import random
import struct
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

import mmhash
from mmhash.media import mp4
from mmhash.media.container import probe_video_index
from mmhash.media.recipe import VideoIndex
from tests.support.clips import make_audio, make_video, remux, rewrite_video

H264 = make_video("h264.mp4", 24)
SOURCES: dict[str, tuple[str, int, dict[str, str]]] = {
    "h264": ("h264.mp4", 24, {}),
    "h264, all keyframes": ("h264.mp4", 9, {"bf": "0", "g": "1"}),
    "h264, open GOP": ("h264.mp4", 30, {"g": "6", "x264-params": "open-gop=1"}),
    "vp9": ("vp9.webm", 16, {}),
    "av1": ("av1.mkv", 12, {}),
}
CONTAINERS = {b"moov", b"trak", b"edts", b"mdia", b"minf", b"dinf", b"stbl", b"udta"}
# The kinds of files that have each sound.
SOUNDS = {
    "aac.mp4": ("mp4", "mov"),
    "mp3.mp3": ("mp4",),
    "opus.ogg": ("mp4",),
    "flac.flac": ("mp4",),
    "ac3.ac3": ("mp4", "mov"),
    "eac3.eac3": ("mp4", "mov"),
}
FILMS_WITH_SOUND = [(name, kind) for name, kinds in SOUNDS.items() for kind in kinds]
KINDS = [
    *(b"moov trak edts elst mdia mdhd hdlr minf stbl stsd stts ctts stss stsc stsz".split()),
    *(b"soun smhd sbgp wave esds btrt chan dOps dfLa dac3 dec3".split()),
    *(b"stco co64 stz2 stps sgpd mvex trex moof sidx cmov free wide mdat meta covr sinf".split()),
]


@cache
def source(name: str) -> bytes:
    """Return a video of `SOURCES`."""
    kind, frames, options = SOURCES[name]
    return make_video(kind, frames, options=options)


def boxes_of(film: bytes, start: int = 0, end: int | None = None) -> list[tuple[int, int, int]]:
    """Return the start, size and depth of all boxes."""
    end = len(film) if end is None else end
    found = []
    while start < end:
        size, kind = struct.unpack_from(">I4s", film, start)
        assert size >= 8
        found.append((start, size, 0))
        if kind in CONTAINERS:
            inner = boxes_of(film, start + 8, start + size)
            found += [(each, nbytes, depth + 1) for each, nbytes, depth in inner]
        start += size
    return found


@pytest.mark.parametrize(
    ("name", "container"),
    [*((name, "mp4") for name in SOURCES), *((name, "mov") for name in SOURCES if "h264" in name)],
)
def test_plain_files_are_read_without_ffmpeg(name: str, container: str, tmp_path: Path) -> None:
    film = source(name)
    for path, options in ((None, {}), (tmp_path / "film", {"movflags": "faststart"})):
        for durations in ((512,), (300, 700, 512), (1, 5000)):
            each = rewrite_video(
                film, container, path=path, durations=durations, frames=9, options=options
            )
            index = mp4.read_index(each)
            assert index == probe_video_index(each)
            assert index is not None
            assert index.frames == 9


@pytest.mark.parametrize("scale", [30, 600, 12_800, 90_000, 1_000_000])
def test_time_scales_and_negative_offsets(scale: int) -> None:
    for options in ({}, {"movflags": "negative_cts_offsets"}, {"use_editlist": "0"}):
        chosen = options | {"video_track_timescale": str(scale)}
        film = rewrite_video(H264, "mp4", base=24_000, durations=(1001,), options=chosen)
        index = mp4.read_index(film)
        assert index is not None
        assert index == probe_video_index(film)


def test_the_rate_is_exact() -> None:
    film = rewrite_video(H264, "mp4", base=30_000, durations=(1001,))
    assert mp4.read_index(film) == VideoIndex(24, Fraction(30_000, 1001), 64, 48)


@pytest.mark.parametrize(("name", "container"), FILMS_WITH_SOUND)
def test_films_with_sound_are_read_without_ffmpeg(name: str, container: str) -> None:
    sound = make_audio(name, 2, rate=48_000)
    for last in (False, True):
        for delay in (Fraction(0), Fraction(1, 3)):  # a sound that starts later has two edits
            for options in ({}, {"movie_timescale": "600"}):
                film = remux(H264, sound, container, last=last, delay=delay, **options)
                index = mp4.read_index(film)
                assert index is not None
                assert index == probe_video_index(film)


def test_films_with_several_sounds_are_read_without_ffmpeg() -> None:
    film = remux(H264, make_audio("aac.mp4"), "mp4")
    movie, track = film.index(b"moov") - 4, film.index(b"trak") - 4
    size, length = (struct.unpack_from(">I", film, start)[0] for start in (movie, track))
    for copies in (1, 14, 15):
        sounds = film[track : track + length] * copies
        many = bytearray(film[:track] + sounds + film[track:])
        struct.pack_into(">I", many, movie, size + len(sounds))
        index = mp4.read_index(many)
        assert (index is None) == (copies == 15)  # FFmpeg reads 16 tracks
        assert index is None or index == probe_video_index(many)


def test_films_with_another_sound_are_left_to_ffmpeg() -> None:
    film = remux(H264, make_audio("aac.mp4"), "mp4")
    description = film.index(b"mp4a")
    first = film.index(b"stts", film.index(b"soun"))
    for other in (
        remux(H264, make_audio("pcm.wav"), "mov"),
        remux(H264, b"1\n00:00:00,000 --> 00:00:01,000\nsubtitle\n\n", codec="mov_text"),
        film.replace(b"soun", b"vide"),
        film.replace(b"soun", b"text"),
        film.replace(b"mp4a", b"enca"),
        film.replace(b"roll", b"rap "),
        # A video of MPEG-4, and no configuration of a decoder.
        film.replace(b"\x40\x15", b"\x20\x15"),
        film.replace(b"\x05\x80\x80\x80\x05", b"\x05\x80\x80\x80\x00"),
        film[: description + 20] + bytes(2) + film[description + 22 :],  # no channel
        film[: first + 8] + bytes(4) + film[first + 12 :],  # no sample
    ):
        assert other != film
        assert mp4.read_index(other) is None


@pytest.mark.parametrize("track", [b"soun", b"vide"])
def test_samples_end_in_the_file(track: bytes) -> None:
    film = bytearray(remux(H264, make_audio("aac.mp4", 2, rate=48_000), "mp4"))
    handler = film.index(track)

    def table(kind: bytes) -> int:
        return film.index(kind, handler) + 8

    chunks, runs, samples = (
        struct.unpack_from(">I", film, table(kind) + at)[0]
        for kind, at in ((b"stco", 0), (b"stsc", 0), (b"stsz", 4))
    )
    _, count, _ = struct.unpack_from(">3I", film, table(b"stsc") + 4 + 12 * (runs - 1))
    sizes = struct.unpack_from(f">{samples}I", film, table(b"stsz") + 8)
    last = len(film) - sum(sizes[-count:])
    for offset, fits in ((last - 1, True), (last, True), (last + 1, False), (len(film), False)):
        struct.pack_into(">I", film, table(b"stco") + 4 * chunks, offset)
        index = mp4.read_index(film)
        assert (index is not None) == fits
        assert index is None or index == probe_video_index(film)
    # Of chunks that do not ascend, the ends are not looked for.
    struct.pack_into(">I", film, table(b"stco") + 4 * chunks, last)
    struct.pack_into(">I", film, table(b"stco") + 4, len(film))
    assert mp4.read_index(film) is None


def test_files_of_another_structure_are_left_to_ffmpeg() -> None:
    fragmented = make_video("h264-fragmented.mp4")
    late = rewrite_video(H264, "mp4", start=6400)
    sound = make_audio("pcm.wav")
    cut = bytearray(H264)
    at = H264.index(b"elst") + 12
    struct.pack_into(">I", cut, at, 1000)  # one second of two
    for film in (
        b"",
        b"\0\0\0\x18ftyp",
        fragmented,
        late,
        sound,
        bytes(cut),
        H264 + b"\0",
        H264.replace(b"avc1\0\0\0\0", b"encv\0\0\0\0"),
        remux(H264),
    ):
        assert mp4.read_index(film) is None
    for end in range(0, len(H264), 97):
        assert mp4.read_index(H264[:end]) is None


def test_all_buffers_are_read() -> None:
    index = probe_video_index(H264)
    for film in (H264, bytearray(H264), memoryview(H264)):
        assert mp4.read_index(film) == index


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmhash.media.boxes.MAX_ROWS", 23)
    assert mp4.read_index(H264) is None
    many = H264 + struct.pack(">I4s", 8, b"free") * 1000
    assert mp4.read_index(many) is None


def damage(film: bytes, rng: random.Random) -> bytes:
    """Return a file with another value, box or length somewhere outside of the media data."""
    boxes = boxes_of(film)
    start, size, depth = rng.choice([box for box in boxes if film[box[0] + 4 :][:4] != b"mdat"])
    damaged = bytearray(film)
    way = rng.randrange(6)
    if way < 3:
        at = start + rng.randrange(size)
        value = damaged[at]
        damaged[at] = rng.choice([value ^ 1 << rng.randrange(8), 0, 255, value + 1 & 255])
    elif way == 3 and size >= 12:
        at = start + 8 + 4 * rng.randrange((size - 8) // 4)
        (value,) = struct.unpack_from(">I", damaged, at)
        values = [value + rng.randint(-3000, 3000), value + 1, value - 1, rng.getrandbits(32), 0]
        struct.pack_into(">I", damaged, at, rng.choice(values) & 0xFFFFFFFF)
    elif way == 4:
        damaged[start + 4 : start + 8] = rng.choice(KINDS)
    else:  # removed, twice, or at the place of the next
        box = damaged[start : start + size]
        new = rng.choice([b"", box * 2])
        for outer, nbytes, level in boxes:
            if level < depth and outer < start < outer + nbytes:
                struct.pack_into(">I", damaged, outer, nbytes + len(new) - size)
        damaged[start : start + size] = new
    return bytes(damaged)


def damage_description(film: bytes, rng: random.Random) -> bytes:
    """Return a file with other bytes in the description of the sound's samples."""
    start = film.index(b"stsd", film.index(b"soun")) - 4
    (size,) = struct.unpack_from(">I", film, start)
    damaged = bytearray(film)
    for _ in range(rng.randint(1, 2)):
        damaged[start + rng.randrange(size)] = rng.choice([0, 1, 255, rng.randrange(256)])
    return bytes(damaged)


@pytest.mark.parametrize("name", SOURCES)
def test_damaged_files_are_read_as_by_ffmpeg_or_left_to_it(name: str) -> None:
    rng = random.Random(name)
    film = rewrite_video(source(name), "mp4", durations=(512, 512, 700))
    read = 0
    for _ in range(6 * settings().max_examples):
        damaged = damage(film, rng)
        index = mp4.read_index(damaged)
        if index is not None:
            read += 1
            assert index == probe_video_index(damaged)
    assert read > 0.6 * settings().max_examples


@pytest.mark.parametrize(("name", "container"), FILMS_WITH_SOUND)
def test_damaged_films_with_sound_are_read_as_by_ffmpeg_or_left_to_it(
    name: str, container: str
) -> None:
    rng = random.Random(name)
    film = remux(H264, make_audio(name, rate=48_000), container, last=container == "mov")
    read = 0
    for number in range(3 * settings().max_examples):
        damaged = (damage if number % 2 else damage_description)(film, rng)
        index = mp4.read_index(damaged)
        if index is not None:
            read += 1
            assert index == probe_video_index(damaged)
    assert read > 0.4 * settings().max_examples


def test_a_video_has_one_key_by_both_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    own = mmhash.video(H264, fps=2)
    monkeypatch.setattr("mmhash.media.container.mp4.read_index", lambda _: None)
    assert mmhash.video(H264, fps=2) == own
