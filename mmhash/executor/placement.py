"""The choice between the event loop, one thread, several threads and a GPU."""

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from mmhash import cuda
from mmhash.algorithms import ALGORITHMS, Algorithm
from mmhash.arguments import check_str
from mmhash.digest import Digest
from mmhash.errors import DeviceError, InputValueError
from mmhash.executor.gpu import copy_to_host, current_stream, digest_on_gpu, on_stream
from mmhash.executor.item_cost import ItemCost
from mmhash.executor.rates import ASSUMED, gpu_in_use, rates
from mmhash.framing import frame
from mmhash.hashing import key
from mmhash.view import view_of

# The loop hashes an item itself if reading it takes at most this long. A thread took 150 µs more
# than the hash itself, 110 µs of it on the loop.
INLINE_S = 10e-6
# From here on several threads hash one item, if there is no other job: two, in a pool of their
# own, took 1.24 times as long as one at 2 MiB, 0.65 at 4 MiB, 0.59 at 20 MiB.
PARALLEL_MIN_BYTES = 4 << 20

_DEVICE = re.compile(r"auto|cpu|cuda(:(?P<number>\d+))?")


class Target(NamedTuple):
    """The processor that hashes one item, by default the CPU."""

    # Copy host data to this GPU first.
    gpu: int | None = None
    # Copy GPU tensors to the host first.
    on_host: bool = False
    # Hash GPU tensors after the work that the caller queued on this stream.
    stream: Any = None


class Placement:
    """The placement rules of one hasher: its `device` option, and its machine's measured rates."""

    def __init__(self, device: str, threads: int) -> None:
        self._pinned, number = _parse_device(device)
        self._threads = threads
        self._number = number
        self._rates = ASSUMED
        if number is not None:
            why = cuda.why_unavailable(number)
            if why is not None:
                raise DeviceError(why)

    def measure(self) -> None:
        """Measure the machine's rates; until then those of a slow machine are assumed."""
        self._rates = rates(gpu_in_use())

    def is_inline(self, cost: ItemCost, algorithm: Algorithm) -> bool:
        """Return True if hashing the item on the loop costs less than passing it to a thread."""
        if cost.device is not None or not cost.in_place:
            return False
        known = self._rates
        seconds = (cost.parts - 1) * known.call + cost.nbytes / known.cpu(algorithm)
        return seconds <= INLINE_S

    def target(self, cost: ItemCost, algorithm: Algorithm) -> Target:
        """Return the target of an item that is not hashed on the loop."""
        if cost.device is not None:
            return Target(on_host=self._pinned == "cpu", stream=current_stream(cost.device))
        if cost.parts > 1 or not cost.in_place:
            return Target()
        if self._number is not None:
            return Target(gpu=self._number)
        if self._pinned == "auto" and self._gpu_is_faster(cost.nbytes, algorithm):
            return Target(gpu=gpu_in_use())
        return Target()

    def _gpu_is_faster(self, nbytes: int, algorithm: Algorithm) -> bool:
        known = self._rates
        if not known.gpu(algorithm):
            return False
        by_gpu = known.gpu_call + nbytes / known.gpu(algorithm)
        return by_gpu < nbytes / (known.cpu(algorithm) * self._threads)


def hash_on(
    target: Target, item: Any, algorithm: Algorithm, tenant: bytes | None, threads: int
) -> Digest:
    """Return the key of an item, hashed on its target; this blocks."""
    with on_stream(target.stream):
        if target.gpu is None:
            item = copy_to_host(item) if target.on_host else item
            return key(item, algorithm=algorithm, tenant=tenant, threads=threads)
        view = view_of(item)
        content = digest_on_gpu(target.gpu, view.on_host(), algorithm)
        return frame(view.kind, view.dtype, view.shape, content, view.extra, tenant=tenant)


def facts() -> Iterator[tuple[str, str]]:
    """Yield the lines of `mmhash env`: the rates, and the limits that follow from them."""
    device = os.environ.get("MMHASH_DEVICE", "auto")
    try:
        _parse_device(device)
    except InputValueError as error:
        device = f"{device} ({error})"
    yield "device", device
    try:
        gpu = gpu_in_use()
    except Exception:  # noqa: BLE001  (a broken torch is reported elsewhere)
        gpu = None
    known = rates(gpu)
    for name in ALGORITHMS:
        cpu_rate, gpu_rate = known.cpu(name), known.gpu(name)
        inline = int(INLINE_S * cpu_rate) >> 10
        by_gpu = f", through GPU {gpu} {gpu_rate / 1e9:.1f} GB/s" if gpu_rate else ""
        yield f"{name} rate", f"{cpu_rate / 1e9:.1f} GB/s a thread, inline to {inline} KiB{by_gpu}"


def _parse_device(device: str) -> tuple[str, int | None]:
    """Split a device into auto, cpu or cuda, and its number; MMHASH_DEVICE replaces auto."""
    chosen = os.environ.get("MMHASH_DEVICE", "auto") if device == "auto" else device
    check_str("device", chosen)
    match = _DEVICE.fullmatch(chosen)
    if match is None:
        raise InputValueError(f"device is auto, cpu, cuda or cuda:<number>, not {chosen!r}")
    if not chosen.startswith("cuda"):
        return chosen, None
    return "cuda", int(match["number"] or 0)
