"""Compares `mmhash bulk` with bare reads of the same files, and with the blake3 package.

Each time is a whole command's, from start to end. The peers are scripts of a few lines in the same
number of processes. They list the folder and read its files, or hash them as b3sum does.
"""

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.support.measure import Row, report
from mmhash.cpu import cpu_count

SMALL, SMALL_SIZE = 100_000, 16 << 10
LARGE, LARGE_SIZE = 8, 256 << 20
ROUNDS, KILLS = 3, 10

SCRIPT = """
import os, sys
from blake3 import blake3
folder, share, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
files = sorted(os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)
for path in files[share::processes]:
    {}
"""
READ = SCRIPT.format("""
    file = os.open(path, os.O_RDONLY)
    while os.read(file, 128 << 10): pass
    os.close(file)""")
HASH = SCRIPT.format("blake3(max_threads=blake3.AUTO).update_mmap(path).digest()")


def rows(scratch: Path) -> list[Row]:
    """Measure small and large files, with the page cache and without it, and a killed run."""
    everything = scratch / "all"
    small, large = everything / "small", everything / "large"
    for number in range(SMALL):
        folder = small / f"{number // 1000:02}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.bin").write_bytes(os.urandom(SMALL_SIZE))
    large.mkdir()
    for number in range(LARGE):
        (large / f"{number}.bin").write_bytes(os.urandom(LARGE_SIZE))
    os.sync()
    return [
        *compared(f"{SMALL} files of {SMALL_SIZE >> 10} KiB", small, SMALL * SMALL_SIZE, scratch),
        *compared(f"{LARGE} files of {LARGE_SIZE >> 20} MiB", large, LARGE * LARGE_SIZE, scratch),
        *compared("all of these", everything, SMALL * SMALL_SIZE + LARGE * LARGE_SIZE, scratch),
        killed(small, scratch),
    ]


def compared(what: str, folder: Path, nbytes: int, scratch: Path) -> list[Row]:
    """Return a row for each peer, with the page cache and without it."""
    figures = []
    for cold in (False, True):
        calls = {
            "bulk": lambda: together([bulk(folder, scratch / "keys")]),
            "read": lambda: together(script(READ, folder)),
            "blake3 AUTO, mapped": lambda: together(script(HASH, folder)),
        }
        seconds = medians(calls, folder, cold=cold)
        rates = {name: nbytes / 2**20 / taken for name, taken in seconds.items()}
        ours = rates.pop("bulk")
        slower = min(rates, key=rates.__getitem__)
        where = "disk" if cold else "page cache"
        figures += [
            Row(f"{what}, {where}", ours, "MiB/s", name, rate, ours / rate,
                ">= 0.8" if name == slower else "")
            for name, rate in rates.items()
        ]  # fmt: skip
    return figures


def medians(calls: dict[str, Callable[[], float]], folder: Path, *, cold: bool) -> dict[str, float]:
    """Return the median seconds of each call. The calls take turns in random order."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 1):
        for name in random.sample(list(calls), len(calls)):
            if cold:
                evict(folder)
            seconds = calls[name]()
            if turn:  # the first round warms up
                taken[name].append(seconds)
    return {name: statistics.median(times) for name, times in taken.items()}


def evict(folder: Path) -> None:
    """Drop the files from the page cache."""
    for path in folder.rglob("*.bin"):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def bulk(folder: Path, out: Path) -> list[str]:
    """Return our command, after deleting the result of an earlier round."""
    shutil.rmtree(out, ignore_errors=True)
    return [sys.executable, "-m", "mmhash", "bulk", str(folder), "--out", str(out)]


def script(program: str, folder: Path) -> list[list[str]]:
    """Return a peer's commands, one for each process."""
    count = cpu_count()
    shares = range(count)
    return [
        [sys.executable, "-c", program, str(folder), str(share), str(count)] for share in shares
    ]


def together(commands: Sequence[Sequence[str]]) -> float:
    """Run the commands at the same time. Return the seconds until all have ended."""
    start = time.perf_counter()
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    if any(process.wait() for process in running):
        raise RuntimeError(f"failed: {commands[0]}")
    return time.perf_counter() - start


def killed(folder: Path, scratch: Path) -> Row:
    """Kill runs on the small files at random. Check that a resumed run has the same result."""
    whole, out = scratch / "whole", scratch / "keys"
    seconds = together([bulk(folder, whole)])
    command = bulk(folder, out)
    for _ in range(KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(random.uniform(0, seconds / 3))
        process.kill()
        process.wait()
    together([command])
    contents = [
        {part.name: part.read_bytes() for part in folder.iterdir()} for folder in (out, whole)
    ]
    if contents[0] != contents[1]:
        raise RuntimeError("the killed run has other keys")
    return Row("equal after kills at random", KILLS, "", target="10")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        report("bulk", rows(Path(name)))
