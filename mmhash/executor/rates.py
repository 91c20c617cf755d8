"""This machine's hash rates, measured once, by which items are placed."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from platform import node
from time import perf_counter
from typing import NamedTuple

import numpy as np
from blake3 import blake3

from mmhash import cuda
from mmhash.cpu import cpu_count, hash_bytes
from mmhash.cuda.compiler import cache_directory
from mmhash.digest import Algorithm
from mmhash.executor.gpu import digest_on_gpu
from mmhash.hashing import key

_MIB = 1 << 20


class Rates(NamedTuple):
    """Bytes a second of one thread, the seconds of the smallest key, and the same of a GPU.

    Hashing host data on a GPU takes a copy and a kernel: `gpu_call` seconds, plus the bytes at
    the GPU's rate.
    """

    blake3: float
    xxh3: float
    call: float
    gpu_blake3: float = 0.0
    gpu_xxh3: float = 0.0
    gpu_call: float = 0.0

    def cpu(self, algorithm: Algorithm) -> float:
        """Return the rate of one thread."""
        return self.blake3 if algorithm == "blake3" else self.xxh3

    def gpu(self, algorithm: Algorithm) -> float:
        """Return the rate of the GPU; 0 without one."""
        return self.gpu_blake3 if algorithm == "blake3" else self.gpu_xxh3


# Until the machine is measured: a slow core of today, and no GPU.
ASSUMED = Rates(blake3=1e9, xxh3=5e9, call=20e-6)


def gpu_in_use() -> int | None:
    """Return the GPU that this process uses already: a new context would take 500 MiB there."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    device: int = torch.cuda.current_device()
    return device if cuda.why_unavailable(device) is None else None


@cache
def rates(gpu: int | None) -> Rates:
    """Return this machine's rates, from its cache file or else measured in 0.2 s."""
    path = _path(gpu)
    cached = path and _read(path)
    if cached:
        return cached
    measured = measure(gpu)
    if path:
        _write(path, measured)
    return measured


def measure(gpu: int | None) -> Rates:
    """Hash a few MiB with each algorithm, on the CPU and on the GPU."""
    data = np.ones(16 * _MIB, np.uint8).data  # zeros would be one page, read repeatedly
    measured = Rates(
        blake3=len(data) / _least(lambda: hash_bytes(data, "blake3", 1), 5),
        xxh3=len(data) / _least(lambda: hash_bytes(data, "xxh3", 1), 5),
        call=_least(lambda: key(b""), 99),
    )
    if gpu is None:
        return measured
    start = _least(lambda: digest_on_gpu(gpu, data[:4096], "blake3"), 9)
    blake3_seconds = _least(lambda: digest_on_gpu(gpu, data, "blake3"), 5) - start
    xxh3_seconds = _least(lambda: digest_on_gpu(gpu, data, "xxh3"), 5) - start
    return measured._replace(
        gpu_blake3=len(data) / blake3_seconds, gpu_xxh3=len(data) / xxh3_seconds, gpu_call=start
    )


def _least(call: Callable[[], object], rounds: int) -> float:
    """Return the shortest time of some rounds: other work on the machine prolongs the rest."""
    call()
    taken = []
    for _ in range(rounds):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return min(taken)


def _path(gpu: int | None) -> Path | None:
    """Return the cache file of this machine: several may share a home directory."""
    directory = cache_directory()
    if directory is None:
        return None
    machine = f"{node()} {cpu_count()} {gpu} {sys.modules['blake3'].__version__}"
    return directory / f"rates-{blake3(machine.encode()).hexdigest()[:16]}.json"


def _read(path: Path) -> Rates | None:
    try:
        cached = Rates(**json.loads(path.read_bytes()))
        return cached if min(cached[:3]) > 0 and min(cached) >= 0 else None
    except (OSError, TypeError, ValueError):  # no file yet, or one of another version
        return None


def _write(path: Path, measured: Rates) -> None:
    """Write the cache file if possible; a half-written one is not valid JSON and is replaced."""
    with suppress(OSError):
        path.write_text(json.dumps(measured._asdict()))
