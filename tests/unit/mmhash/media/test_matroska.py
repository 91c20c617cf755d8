"""Frames counted by the headers of blocks are those that FFmpeg returns."""

import os
import random
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from io import BytesIO

import av
import pytest
from hypothesis import settings

from mmhash.errors import InputValueError
from mmhash.media.container import probe_video_index, read_video_index
from mmhash.media.matroska import _Walk, count_frames, read_index
from mmhash.media.plain import UnusualError
from tests.support.clips import make_audio, make_video, remux


def packets(film: bytes) -> int:
    with av.open(BytesIO(film)) as container:
        return sum(1 for packet in container.demux(video=0) if packet.size)


FILMS = {"h264": ("h264.mp4", 24), "vp9": ("vp9.webm", 16), "av1": ("av1.mkv", 12)}


SOUNDS = ("aac.mp4", "mp3.mp3", "opus.ogg", "vorbis.ogg", "flac.flac", "ac3.ac3", "eac3.eac3")
SUBTITLES = b"1\n00:00:00,000 --> 00:00:01,000\nOne\n\n2\n00:00:01,000 --> 00:00:02,000\nTwo\n\n"


@cache
def film_with(name: str, *, last: bool = False) -> bytes:
    """Return a film with a sound of `SOUNDS`, or subtitles."""
    sound = SUBTITLES if name == "subtitles" else make_audio(name, 2, rate=48_000)
    return remux(make_video("h264.mp4", 24), sound, last=last, delay=Fraction(last, 3))


@cache
def film_of(name: str) -> bytes:
    """Return a video of `FILMS` as Matroska."""
    kind, frames = FILMS[name]
    film = make_video(kind, frames)
    return remux(film) if kind.endswith(".mp4") else film


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's scheduling")
def test_the_encoder_leaves_the_scheduling_as_it_was() -> None:
    before = os.sched_getscheduler(0)
    make_video("av1.mkv", 3)
    assert os.sched_getscheduler(0) == before


@pytest.mark.parametrize("frames", [1, 24, 130])
def test_frames_are_counted_as_ffmpeg_does(frames: int) -> None:
    film = make_video("h264.mp4", frames)
    files = [make_video(name, frames) for name in ("vp9.webm", "av1.mkv")]
    files += [remux(film), remux(film, reserve_index_space="999")]
    files.append(remux(film, make_audio("flac.flac", 3)))
    for each in files:
        assert count_frames(memoryview(each)) == packets(each) == frames


def test_files_of_another_structure_are_left_to_ffmpeg() -> None:
    film = remux(make_video("h264.mp4", 24))
    live = remux(make_video("h264.mp4", 24), live="1")  # clusters of unknown sizes
    sound = make_audio("flac.flac", 1)
    for other in (
        b"",
        b"\x1a",
        bytes(100),
        live,
        sound,
        film + b"\xec\x80",
        make_video("h264.mp4"),
    ):
        assert count_frames(memoryview(other)) is None
    for end in range(0, len(film), 97):
        assert count_frames(memoryview(film)[:end]) is None


def test_damaged_files_have_a_count_or_none() -> None:
    film = remux(make_video("vp9.webm", 24))
    rng = random.Random(1)
    counted = 0
    for _ in range(2000):
        damaged = bytearray(film)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        found = count_frames(memoryview(damaged))
        assert found is None or 0 < found <= 24
        counted += found is not None
    assert 100 < counted < 2000


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    film = remux(make_video("vp9.webm", 24))
    monkeypatch.setattr("mmhash.media.matroska._MAX_ELEMENTS", 30)
    assert count_frames(memoryview(film)) is None
    assert read_index(film) is None
    walk = _Walk(b"\xe7\x80" * 100)  # times of a cluster
    with pytest.raises(UnusualError):
        walk._walk_cluster(0, 200)
    assert walk._left == -1


def test_a_rate_that_no_header_declares_is_that_of_the_packets() -> None:
    film = remux(make_video("h264.mp4", 24, rate=12))
    start = film.index(b"\x23\xe3\x83\x84")  # DefaultDuration, 4 bytes
    film = film[:start] + b"\xec\x86" + bytes(6) + film[start + 8 :]  # Void
    index = read_video_index(film)
    assert index.frames == 24
    assert abs(index.rate - 12) < 0.5


@pytest.mark.parametrize("name", FILMS)
def test_the_header_of_a_video_is_read_without_ffmpeg(name: str) -> None:
    index = read_index(film_of(name))
    assert index is not None
    assert index == probe_video_index(film_of(name))
    assert index.frames == packets(film_of(name))


def with_duration(film: bytes, nanoseconds: int) -> bytes:
    """Return a file that declares another duration of its frames."""
    at = film.index(b"\x23\xe3\x83\x84") + 4
    return film[:at] + nanoseconds.to_bytes(4) + film[at + 4 :]


def test_rates_are_rounded_as_ffmpeg_does() -> None:
    rng = random.Random(1)
    film = film_of("h264")
    common = [10**9 * 1001 // rate for rate in (24_000, 30_000, 60_000, 120_000)]
    others = [rng.randint(10**6, 10**9) for _ in range(300)]
    for nanoseconds in [*common, *others, 10**6, 10**9, 33_333_333, 16_666_667]:
        film = with_duration(film, nanoseconds)
        index = read_index(film)
        assert index is not None
        assert index == probe_video_index(film)
    for nanoseconds in (0, 10**6 - 1, 10**9 + 1):
        assert read_index(with_duration(film, nanoseconds)) is None


def test_headers_of_another_structure_are_left_to_ffmpeg() -> None:
    film = film_of("h264")
    for other in (
        b"",
        remux(make_video("h264.mp4", 24), make_audio("pcm.wav")),
        remux(make_video("h264.mp4", 24), live="1"),
        film.replace(b"\x1c\x53\xbb\x6b", b"\x19\x41\xa4\x69"),  # attachments
        film.replace(b"V_MPEG4/ISO/AVC", b"V_MPEG4/ISO/ASP"),
        make_video("h264.mp4"),
    ):
        assert read_index(other) is None


@pytest.mark.parametrize("name", [*SOUNDS, "subtitles"])
def test_films_with_other_tracks_are_read_without_ffmpeg(name: str) -> None:
    for film in (film_with(name), film_with(name, last=True)):
        index = read_index(film)
        assert index is not None
        assert index == probe_video_index(film)
        assert index.frames == 24


def element(ident: bytes, content: bytes, width: int) -> bytes:
    """Return an element with a size of some bytes; a shorter one if that is too short."""
    while len(content) >= (1 << 7 * width) - 1:
        width += 1
    return ident + (len(content) | 1 << 7 * width).to_bytes(width) + content


def with_clusters(film: bytes, change: Callable[[bytes], tuple[int, bytes]]) -> bytes:
    """Return a film whose blocks are changed; it has no list of its elements."""
    walk = _Walk(film)
    start, end = walk._segment()
    body = b""
    for ident, at, to in walk._elements(start, end):
        if ident == 0x1F43B675:
            members = b""
            for kind, inner, inner_end in walk._elements(at, to):
                content = film[inner:inner_end]
                width, content = change(content) if kind == 0xA3 else (1, content)
                members += element(bytes([kind]), content, width)
            body += element(b"\x1f\x43\xb6\x75", members, 8)
        elif ident in {0x1549A966, 0x1654AE6B}:
            body += element(ident.to_bytes(4), film[at:to], 2)
    return film[: start - 8] + element(b"", body, 8)


@pytest.mark.parametrize("width", range(1, 9))
def test_sizes_of_blocks_have_any_length(width: int) -> None:
    rng = random.Random(width)
    film = with_clusters(film_with("opus.ogg"), lambda block: (width, block))
    mixed = with_clusters(film_with("aac.mp4"), lambda block: (rng.randint(1, 8), block))
    for each in (film, mixed):
        assert read_index(each) == probe_video_index(each)
        assert read_index(each) is not None
        assert count_frames(each) == packets(each) == 24


def test_blocks_of_another_form_are_left_to_ffmpeg() -> None:
    film = film_with("aac.mp4")
    same = with_clusters(film, lambda block: (3, block))
    assert read_index(same) is not None
    for change in (
        lambda block: (3, b"\x40" + bytes([block[0] & 0x7F]) + block[1:]),  # a track of two bytes
        lambda block: (2, block[:3] + bytes([block[3] | 0x02]) + block[4:]),  # lacing
        lambda block: (3, block[:4]),  # no data
        lambda block: (3, b"\x80" + block[1:]),  # of no track
    ):
        assert read_index(with_clusters(film, change)) is None


@pytest.mark.parametrize("ident", [0xE7, 0xA5, 0xAE])
def test_other_elements_of_clusters_are_left_to_ffmpeg(ident: int) -> None:
    # FFmpeg returns fewer packets after a time of many bytes or an element of another place.
    film = film_with("aac.mp4")
    walk = _Walk(film)
    (cluster,) = [each for each in walk._elements(*walk._segment()) if each[0] == 0x1F43B675]
    blocks = [at for kind, at, to in walk._elements(*cluster[1:]) if 127 <= to - at < 1 << 14]
    damaged = bytearray(film)
    damaged[blocks[5] - 3] = ident
    assert read_index(damaged) is None
    assert count_frames(damaged) is None


@pytest.mark.parametrize("name", ["opus.ogg", "vorbis.ogg"])
def test_films_of_an_encoder_with_sound(name: str) -> None:
    film = make_video("vp9.webm", 30, sound=make_audio(name, 2, rate=48_000))
    index = read_index(film)
    assert index is not None
    assert index == probe_video_index(film)


def test_films_with_other_tracks_of_another_structure_are_left_to_ffmpeg() -> None:
    film = film_with("aac.mp4")
    for other in (
        film.replace(b"\xd7\x81\x01", b"\xd7\x81\x02"),  # two tracks of one number
        film.replace(b"\xd7\x81\x01", b"\xd7\x81\x03"),  # blocks of no track
        film.replace(b"\x83\x81\x02", b"\x83\x81\x01"),  # two videos
        film.replace(b"\x83\x81\x02", b"\x83\x81\x03"),  # several kinds in a track
        film.replace(b"A_AAC", b"A_DTS"),
        film.replace(b"\x9f\x81\x02", b"\x9f\x81\x00"),  # no channel
    ):
        assert other != film
        assert read_index(other) is None


def test_a_video_without_its_configuration_is_left_to_ffmpeg() -> None:
    film = film_of("h264")
    start = film.index(b"\x63\xa2")
    size = film[start + 2] - 0x80
    void = bytes((0xEC, 0x80 + size + 1)) + bytes(size + 1)
    damaged = film[:start] + void + film[start + 3 + size :]
    with pytest.raises(InputValueError):
        probe_video_index(damaged)
    assert read_index(damaged) is None


@pytest.mark.parametrize("name", [*FILMS, *SOUNDS, "subtitles"])
def test_damaged_headers_are_read_as_by_ffmpeg_or_left_to_it(name: str) -> None:
    rng = random.Random(name)
    film = film_of(name) if name in FILMS else film_with(name)
    header = film.index(b"\x1f\x43\xb6\x75") + 12
    read = 0
    for _ in range(8 * settings().max_examples):
        damaged = bytearray(film)
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(header)
            value = damaged[at]
            damaged[at] = rng.choice([value ^ 1 << rng.randrange(8), 0, 255, value + 1 & 255])
        index = read_index(bytes(damaged))
        if index is not None:
            read += 1
            assert index == probe_video_index(bytes(damaged))
    assert read > 0.8 * settings().max_examples
