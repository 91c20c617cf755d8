"""How fast this machine hashes, measured once: what decides where an item is hashed."""

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
from mmhash.executor.gpu import digest_through
from mmhash.hashing import key

_MIB = 1 << 20


class Rates(NamedTuple):
    """Bytes a second of one thread, the seconds of the smallest key, and the way by a GPU.

    The way by the GPU is a copy and a kernel: so many seconds in any case, and a rate.
    """

    cpu_rates: dict[Algorithm, float]
    call: float
    gpu_rates: dict[Algorithm, float] = {}  # noqa: RUF012  (never changed)
    gpu_call: float = 0.0

    def cpu(self, algorithm: Algorithm) -> float:
        """The rate of one thread."""
        return self.cpu_rates[algorithm]

    def gpu(self, algorithm: Algorithm) -> float:
        """The rate by the GPU; 0 without one."""
        return self.gpu_rates[algorithm] if self.gpu_rates else 0.0


# Until the machine is measured: a slow core of today, and no GPU.
ASSUMED = Rates({name: spec.assumed_rate for name, spec in ALGORITHM_SPECS.items()}, call=20e-6)


def gpu_in_use() -> int | None:
    """The GPU that this process uses already: a context of its own would take 500 MiB there."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    device: int = torch.cuda.current_device()
    return device if cuda.why_unavailable(device) is None else None


@cache
def rates(gpu: int | None) -> Rates:
    """The rates of this machine, from its cache file if it has one, else measured in 0.2 s."""
    path = _path(gpu)
    found = path and _read(path)
    if found:
        return found
    measured = measure(gpu)
    if path:
        _write(path, measured)
    return measured


def measure(gpu: int | None) -> Rates:
    """Hash a few MiB with each algorithm, here and through the GPU."""
    data = np.ones(16 * _MIB, np.uint8).data  # zeros would be one page, read again and again
    cpu_rates = {
        name: len(data) / _least(partial(hash_bytes, data, name, 1), 5) for name in ALGORITHMS
    }
    call = _least(lambda: key(b""), 99)
    if gpu is None:
        return Rates(cpu_rates, call)
    gpu_call = _least(lambda: digest_through(gpu, data[:4096], "blake3"), 9)
    gpu_rates = {
        name: len(data) / (_least(partial(digest_through, gpu, data, name), 5) - gpu_call)
        for name in ALGORITHMS
    }
    return Rates(cpu_rates, call, gpu_rates, gpu_call)


def _least(call: Callable[[], object], rounds: int) -> float:
    """The shortest of some rounds: whatever else ran then made the others longer."""
    call()
    taken = []
    for _ in range(rounds):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return min(taken)


def _path(gpu: int | None) -> Path | None:
    """A file for each machine: a home directory may be shared by several."""
    directory = cache_directory()
    if directory is None:
        return None
    machine = f"{node()} {cpu_count()} {gpu} {sys.modules['blake3'].__version__}"
    return directory / f"rates-{blake3(machine.encode()).hexdigest()[:16]}.json"


def _read(path: Path) -> Rates | None:
    try:
        read = Rates(**json.loads(path.read_bytes()))
        rates_are_known = [read.cpu_rates[name] > 0 for name in ALGORITHMS]
        rates_are_known += [read.gpu(name) >= 0 for name in ALGORITHMS]
        return read if all(rates_are_known) and read.call > 0 and read.gpu_call >= 0 else None
    except (
        OSError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ):  # none yet, or of another version
        return None


def _write(path: Path, measured: Rates) -> None:
    """Best effort; a half-written file is not valid JSON and is measured again."""
    with suppress(OSError):
        path.write_text(json.dumps(measured._asdict()))
