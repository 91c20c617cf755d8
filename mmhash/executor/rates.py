"""This machine's hash rates, measured once, by which items are placed."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from platform import node
from time import perf_counter
from typing import NamedTuple

import numpy as np
from blake3 import blake3

from mmhash import cuda
from mmhash.algorithms import ALGORITHM_SPECS, ALGORITHMS, Algorithm
from mmhash.cpu import cpu_count, hash_bytes
from mmhash.cuda.compiler import cache_directory
from mmhash.executor.gpu import digest_on_gpu
from mmhash.hashing import key

_MIB = 1 << 20


class Rates(NamedTuple):
    """Bytes per second of one thread, the seconds of the smallest key, and the same of a GPU.

    Hashing host data on a GPU takes a copy and a kernel: `gpu_call` seconds, plus the bytes at
    the GPU's rate.
    """

    cpu_rates: dict[Algorithm, float]
    call: float
    gpu_rates: dict[Algorithm, float] = {}  # noqa: RUF012  (never changed)
    gpu_call: float = 0.0

    def cpu(self, algorithm: Algorithm) -> float:
        """Return the rate of one thread."""
        return self.cpu_rates[algorithm]

    def gpu(self, algorithm: Algorithm) -> float:
        """Return the rate of the GPU; 0 without one."""
        return self.gpu_rates[algorithm] if self.gpu_rates else 0.0


# Until the machine is measured: a slow core of today, and no GPU.
ASSUMED = Rates({name: spec.assumed_rate for name, spec in ALGORITHM_SPECS.items()}, call=20e-6)


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
    cpu_rates = {
        name: len(data) / _least(partial(hash_bytes, data, name, 1), 5) for name in ALGORITHMS
    }
    call = _least(lambda: key(b""), 99)
    if gpu is None:
        return Rates(cpu_rates, call)
    gpu_call = _least(lambda: digest_on_gpu(gpu, data[:4096], "blake3"), 9)
    gpu_rates = {
        name: len(data) / (_least(partial(digest_on_gpu, gpu, data, name), 5) - gpu_call)
        for name in ALGORITHMS
    }
    return Rates(cpu_rates, call, gpu_rates, gpu_call)


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
        cpu_rates = [cached.cpu_rates[name] for name in ALGORITHMS]
        gpu_rates = [cached.gpu(name) for name in ALGORITHMS]
        is_sound = min(*cpu_rates, cached.call) > 0 and min(*gpu_rates, cached.gpu_call) >= 0
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None  # no file yet, or one of another version
    return cached if is_sound else None


def _write(path: Path, measured: Rates) -> None:
    """Write the cache file if possible; a half-written one is not valid JSON and is replaced."""
    with suppress(OSError):
        path.write_text(json.dumps(measured._asdict()))
