"""Measures keys of a 20 MB video by its bytes and by its source."""

import mmap
import random
import statistics
import tempfile
import time
from pathlib import Path

import mmhash
from bench.support.measure import Call, Row, report
from mmhash.media.container import read_video_index
from tests.support.clips import make_audio, make_video, remux

FRAMES, RATE = 160, 25
OPTIONS = {"preset": "ultrafast", "qp": "3"}


def rows() -> list[Row]:
    """Measure every figure for media that the docs quote."""
    film, long_film = (
        make_video("h264.mp4", frames, rate=RATE, size=(1280, 720), options=OPTIONS)
        for frames in (FRAMES, 3 * FRAMES)
    )
    matroska = remux(film)
    sound = make_audio("mp3.mp3", FRAMES / RATE, rate=48_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        path.write_bytes(film)
        return [
            Row("size of the video", len(film) / 1e6, "MB"),
            Row("size of the long video", len(long_film) / 1e6, "MB"),
            *costs(film, long_film, matroska, path),
            *costs_with_sound(remux(film, sound, "mp4"), remux(film, sound)),
        ]


def costs(film: bytes, long_film: bytes, matroska: bytes, path: Path) -> list[Row]:
    """Time each way to compute a key of a video without sound."""
    calls = calls_by_source(film, matroska, "in memory") | {
        "key of the bytes, long": lambda: mmhash.key(long_film, threads=1),
        "by source, long MP4, fps=2": lambda: mmhash.video(long_film, fps=2, threads=1),
        "key of the bytes, mapped file": lambda: key_of_file(path),
        "by source, MP4 file, fps=2": lambda: mmhash.video(path, fps=2, threads=1),
    }
    return compare(cpu_seconds(calls, rounds=81))


def costs_with_sound(film: bytes, matroska: bytes) -> list[Row]:
    """Time each way to compute a key of a video with sound."""
    return compare(cpu_seconds(calls_by_source(film, matroska, "with sound"), rounds=81))


def calls_by_source(film: bytes, matroska: bytes, kind: str) -> dict[str, Call]:
    """Return each way to compute a key, for a video in two containers."""
    # Use one thread: others would fall asleep between two calls, and be slow to wake.
    return {
        f"key of the bytes, {kind}": lambda: mmhash.key(film, threads=1),
        f"by source, MP4 {kind}, fps=2": lambda: mmhash.video(film, fps=2, threads=1),
        f"by source, MP4 {kind}, count=32": lambda: mmhash.video(film, count=32, threads=1),
        f"by source, Matroska {kind}, fps=2": lambda: mmhash.video(matroska, fps=2, threads=1),
        f"the index of the MP4 {kind}": lambda: read_video_index(film),
        f"key of the bytes, Matroska {kind}": lambda: mmhash.key(matroska, threads=1),
    }


def compare(times: dict[str, float]) -> list[Row]:
    """Compare each time with the time of a key of the same file's bytes, in the same run."""
    result = []
    for what, seconds in times.items():
        place = "mapped file" if "file" in what else "in memory"
        place = "with sound" if "with sound" in what else place
        # The bytes of another file are not in the core's caches.
        place = f"Matroska {place}" if "Matroska" in what else place
        place = "long" if "long" in what else place
        peer = f"key of the bytes, {place}"
        ratio = seconds / times[peer]
        result.append(Row(what, seconds * 1e3, "ms", peer, times[peer] * 1e3, ratio))
    return result


def cpu_seconds(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Return the median CPU time of each call. CPU time hardly depends on other processes."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    shuffle = random.Random(0).sample
    for _ in range(rounds):
        for name in shuffle(list(calls), len(calls)):
            start = time.process_time()
            calls[name]()
            taken[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def key_of_file(path: Path) -> mmhash.Digest:
    """Return the key of a file's bytes, as `mmhash.video` reads them."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mmhash.key(mapped, threads=1)


if __name__ == "__main__":
    # A ratio is a key's CPU time, divided by the CPU time of the key of the bytes.
    report("media", rows())
