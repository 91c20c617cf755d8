"""Does the library keep the speed of the packages beneath it, and of what does it relieve SGLang?"""

import hashlib
import resource
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import torch
from blake3 import blake3
from xxhash import xxh3_128_digest

import mmhash
from bench.measure import Row, interleaved, report
from mmhash.cpu import cpu_count

MIB = 1 << 20
NOISE = np.random.default_rng(0).integers(0, 256, 512 * MIB, dtype=np.uint8)


def rows() -> list[Row]:
    """Every figure that docs and README quote of the CPU."""
    return [*throughput(), *overhead(), *memory(), *imports()]


def throughput() -> list[Row]:
    """Large buffers: milliseconds, beside the package on the same threads and beside sha256."""
    found = []
    for size, rounds in ((20, 41), (512, 5)):
        data = memoryview(NOISE[: size * MIB])

        def compare(
            what: str, asked: str, ours: Callable[[], object], peer: str, theirs: Callable[[], object],
            data: memoryview = data, size: int = size, rounds: int = rounds, vs_sha256: str = "",
        ) -> None:  # fmt: skip
            ours()
            theirs()
            own, other, sha256 = interleaved(
                ours, theirs, lambda: hashlib.sha256(data).digest(), rounds=rounds
            )
            what = f"{what}, {size} MiB"
            found.append(Row(what, own * 1e3, "ms", peer, other * 1e3, other / own, asked))
            found.append(
                Row(what, own * 1e3, "ms", "sha256", sha256 * 1e3, sha256 / own, vs_sha256)
            )

        goal = size == 20
        compare("blake3, 1 thread", ">= 0.95" if goal else "",
                lambda data=data: mmhash.digest(data, threads=1),
                "blake3 1 thread", lambda data=data: blake3(data).digest(),
                vs_sha256=">= 3.4" if goal else "")  # fmt: skip
        compare(f"blake3, {cpu_count()} threads", ">= 0.95" if goal else "",
                lambda data=data: mmhash.digest(data),
                "blake3 AUTO", lambda data=data: blake3(data, max_threads=blake3.AUTO).digest(),
                vs_sha256=">= 6.3 (2 threads)" if goal else "")  # fmt: skip
        compare("xxh3, 1 thread", ">= 0.85" if goal else "",
                lambda data=data: mmhash.digest(data, algorithm="xxh3", threads=1),
                "XXH3-128", lambda data=data: xxh3_128_digest(data))  # fmt: skip
        compare(f"xxh3, {cpu_count()} threads", "",
                lambda data=data: mmhash.digest(data, algorithm="xxh3"),
                "XXH3-128", lambda data=data: xxh3_128_digest(data))  # fmt: skip
    return found


def overhead() -> list[Row]:
    """1 KiB: microseconds on top of the package's own call."""
    data = NOISE[:1024].tobytes()
    array, tensor = NOISE[:1024].view(np.float32), torch.zeros(16, 32, dtype=torch.bfloat16)
    package, digest, of_array, of_tensor = (
        seconds * 1e6
        for seconds in interleaved(
            lambda: blake3(data).digest(),
            lambda: mmhash.digest(data),
            lambda: mmhash.key(array),
            lambda: mmhash.key(tensor),
            rounds=21,
            loops=5000,
        )
    )
    return [
        Row("digest of 1 KiB: on top of the package", digest - package, "us", "blake3", package, asked="<= 3"),
        Row("key of a 1 KiB array, in all", of_array, "us", asked="<= 12"),
        Row("key of a 1 KiB tensor, in all", of_tensor, "us", asked="<= 12"),
    ]  # fmt: skip


def memory() -> list[Row]:
    """What hashing 256 MiB adds to the process's peak."""
    tensor = torch.from_numpy(NOISE)[: 256 * MIB].view(torch.bfloat16)
    mmhash.key(tensor[: 4 * MIB])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mmhash.key(tensor)
    mmhash.key(tensor, algorithm="xxh3")
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return [Row("memory added by a 256 MiB tensor", added / 1024, "MiB", asked="< 1")]


def imports() -> list[Row]:
    """Milliseconds of a first import, with what it imports, in a process of its own."""
    program = (
        "import time; start = time.perf_counter(); {};"
        "print(time.perf_counter() - start)"
    )  # fmt: skip

    def seconds(statement: str) -> float:
        runs = [
            float(subprocess.check_output([sys.executable, "-c", program.format(statement)]))
            for _ in range(9)
        ]
        return sorted(runs)[len(runs) // 2] * 1e3

    ours, numpy = seconds("import mmhash; mmhash.digest(b'')"), seconds("import numpy")
    return [Row("import mmhash and a digest", ours, "ms", "import numpy", numpy, asked="< 150")]


if __name__ == "__main__":
    report("cpu", rows())
