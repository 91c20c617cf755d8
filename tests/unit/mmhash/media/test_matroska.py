"""Frames counted by the headers of blocks are those that FFmpeg returns."""

import random
from io import BytesIO
from typing import Any

import av
import pytest

from mmhash.media.container import read_video_index
from mmhash.media.matroska import count_frames
from tests.support.clips import make_audio, make_video


def packets(film: bytes) -> int:
    with av.open(BytesIO(film)) as container:
        return sum(1 for packet in container.demux(video=0) if packet.size)


def remux(film: bytes, sound: bytes | None = None, **options: str) -> bytes:
    """Return a film, and perhaps a sound, as Matroska."""
    out = BytesIO()
    with av.open(out, "w", format="matroska", options=options) as target:
        opened: list[Any] = [av.open(BytesIO(each)) for each in (sound, film) if each is not None]
        streams = [target.add_stream_from_template(source.streams[0]) for source in opened]
        pieces = [
            (packet.dts * packet.time_base, number, packet)
            for number, source in enumerate(opened)
            for packet in source.demux()
            if packet.dts is not None
        ]
        for _, number, packet in sorted(pieces, key=lambda piece: piece[:2]):
            packet.stream = streams[number]
            target.mux(packet)
    return out.getvalue()


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


def test_a_rate_that_no_header_declares_is_that_of_the_packets() -> None:
    film = remux(make_video("h264.mp4", 24, rate=12))
    start = film.index(b"\x23\xe3\x83\x84")  # DefaultDuration, 4 bytes
    film = film[:start] + b"\xec\x86" + bytes(6) + film[start + 8 :]  # Void
    index = read_video_index(film)
    assert index.frames == 24
    assert abs(index.rate - 12) < 0.5
