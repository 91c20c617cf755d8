"""Compares the library on the CPU with the packages that it uses, and with sha256."""

import hashlib
import random
import resource
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from xxhash import xxh3_128_digest

import mmhash
from bench.support.measure import Call, Row, compare, medians, report
from mmhash.cpu import cpu_count
from mmhash.framing import KEY_CONTEXT

MIB = 1 << 20
NOISE = np.random.default_rng(0).integers(0, 256, 512 * MIB, dtype=np.uint8)


def rows() -> list[Row]:
    """Measure every figure for the CPU that the docs quote."""
    return [
        *throughput(20, rounds=31, loops=5),
        *throughput(512, rounds=5, loops=1),
        *overhead(),
        *keys_of_1_kib(),
        *list_of_4_kib(),
        *memory(),
        *imports(),
    ]


def throughput(mib: int, *, rounds: int, loops: int) -> list[Row]:
    """Compare a large buffer with the package on as many threads, and with SGLang's sha256."""
    data = NOISE[: mib * MIB].data
    sha256 = lambda: hashlib.sha256(data).digest()  # noqa: E731
    xxh3 = lambda: xxh3_128_digest(data)  # noqa: E731
    return [
        *compare(
            f"blake3, {mib} MiB, 1 thread",
            lambda: mmhash.digest(data, threads=1),
            {
                "blake3": (lambda: blake3(data).digest(), ">= 0.95"),
                "sha256": (sha256, ">= 3.4"),
            },
            rounds=rounds,
            loops=loops,
        ),
        *compare(
            f"blake3, {mib} MiB, {cpu_count()} threads",
            lambda: mmhash.digest(data),
            {
                "blake3 AUTO": (
                    lambda: blake3(data, max_threads=blake3.AUTO).digest(),
                    ">= 0.95",
                ),
                "sha256": (sha256, ">= 6.3 on 2 threads"),
            },
            rounds=rounds,
            loops=loops,
        ),
        *compare(
            f"xxh3, {mib} MiB, 1 thread",
            lambda: mmhash.digest(data, algorithm="xxh3", threads=1),
            {"XXH3-128": (xxh3, ">= 0.85")},
            rounds=rounds,
            loops=loops,
        ),
        *compare(
            f"xxh3, {mib} MiB, {cpu_count()} threads",
            lambda: mmhash.digest(data, algorithm="xxh3"),
            {"XXH3-128": (xxh3, "")},
            rounds=rounds,
            loops=loops,
        ),
    ]


def overhead() -> list[Row]:
    """Measure 1 KiB, where the call itself is most of the cost."""
    data = NOISE[:1024].tobytes()
    array, tensor = NOISE[:1024].view(np.float32), torch.zeros(16, 32, dtype=torch.bfloat16)
    package, digest, of_array, of_tensor = (
        seconds * 1e6
        for seconds in medians(
            lambda: blake3(data).digest(),
            lambda: mmhash.digest(data),
            lambda: mmhash.key(array),
            lambda: mmhash.key(tensor),
            rounds=21,
            loops=5000,
        )
    )
    return [
        Row("digest of 1 KiB, on top of blake3", digest - package, "us", target="<= 3"),
        Row("key of a 1 KiB array, total", of_array, "us", target="<= 12"),
        Row("key of a 1 KiB tensor, total", of_tensor, "us", target="<= 12"),
    ]


def keys_of_1_kib() -> list[Row]:
    """Compare a key of 1 KiB with the two calls of the package that it needs."""
    array, frame = NOISE[:1024].view(np.float32), bytes(137)
    data = array.tobytes()
    tensor = torch.from_numpy(array.copy())
    items = {
        "bytes": data, "array": array, "float32 tensor": tensor,
        "bfloat16 tensor": tensor.view(torch.bfloat16),
    }  # fmt: skip
    package, *ours = least(
        lambda: (blake3(data).digest(), blake3(frame, derive_key_context=KEY_CONTEXT).digest()),
        *(partial(mmhash.key, item) for item in items.values()),
        rounds=101,
        loops=1000,
    )
    return [
        Row(f"key of 1 KiB, {name}", own * 1e6, "us", "two calls of blake3", package * 1e6,
            package / own, ">= 0.4")
        for name, own in zip(items, ours, strict=True)
    ]  # fmt: skip


def list_of_4_kib(count: int = 100_000) -> list[Row]:
    """Compare the keys of a long list of short items with a loop of the package's calls."""
    rows_of_noise = NOISE[: count * 4096].reshape(count, 4096)
    items: dict[str, list[Any]] = {
        "bytes": [row.tobytes() for row in rows_of_noise],
        "arrays": list(rows_of_noise),
        "tensors": list(torch.from_numpy(rows_of_noise).unbind()),
    }
    frame = bytes(105)
    package, *ours = least(
        lambda: [
            blake3(frame + blake3(item).digest(), derive_key_context=KEY_CONTEXT).digest()
            for item in items["bytes"]
        ],
        *(partial(mmhash.keys, values) for values in items.values()),
        rounds=7,
    )
    return [
        Row(f"key in a list of {count} x 4 KiB, {name}", own / count * 1e6, "us",
            "two calls of blake3", package / count * 1e6, package / own, "<= 6 us")
        for name, own in zip(items, ours, strict=True)
    ]  # fmt: skip


def least(*calls: Call, rounds: int, loops: int = 1) -> list[float]:
    """Return the least CPU seconds of each call. Other processes may interrupt the thread."""
    seconds = [float("inf")] * len(calls)
    for call in calls:
        call()
    for _ in range(rounds):
        for index in random.sample(range(len(calls)), len(calls)):
            start = time.thread_time()
            for _ in range(loops):
                calls[index]()
            seconds[index] = min(seconds[index], (time.thread_time() - start) / loops)
    return seconds


def memory() -> list[Row]:
    """Measure how much hashing 256 MiB adds to the process's peak memory."""
    tensor = torch.from_numpy(NOISE)[: 256 * MIB].view(torch.bfloat16)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mmhash.key(tensor)
    mmhash.key(tensor, algorithm="xxh3")
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return [Row("memory added by a 256 MiB tensor", added / 1024, "MiB", target="< 1")]


def imports() -> list[Row]:
    """Time the first import, each time in a new process."""
    program = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"

    def milliseconds(statement: str) -> float:
        command = [sys.executable, "-c", program.format(statement)]
        return 1e3 * statistics.median(float(subprocess.check_output(command)) for _ in range(9))

    ours, numpy = milliseconds("import mmhash; mmhash.digest(b'')"), milliseconds("import numpy")
    return [Row("import and first digest", ours, "ms", "import numpy", numpy, target="< 150 ms")]


if __name__ == "__main__":
    report("cpu", rows())
