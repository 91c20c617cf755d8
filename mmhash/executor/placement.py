"""Where an item is hashed: on the loop, in a thread, in several, or on a GPU."""

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from mmhash import cuda
from mmhash.algorithms import ALGORITHMS, Algorithm
from mmhash.digest import Digest
from mmhash.errors import DeviceError, InputTypeError, InputValueError
from mmhash.executor.gpu import after, current_stream, digest_through, on_host
from mmhash.executor.item_cost import ItemCost
from mmhash.executor.rates import ASSUMED, gpu_in_use, rates
from mmhash.framing import frame
from mmhash.hashing import key
from mmhash.view import view_of

# What the loop reads itself takes no longer than this beyond what any key costs. To a thread and
# back took 150 µs more than the hash itself, 110 µs of it on the loop.
INLINE_SECONDS = 10e-6
# From here on several threads hash one item, if nothing else is there to do: two, in a pool of
# their own, took 1.24 times as long as one at 2 MiB, 0.65 at 4 MiB, 0.59 at 20 MiB.
WIDE_FROM = 4 << 20

_DEVICE = re.compile(r"auto|cpu|cuda(:(?P<number>\d+))?")


class Device(NamedTuple):
    """Where one item goes."""

    inline: bool = False
    # The GPU that host data is copied to.
    through: int | None = None
    # GPU tensors are copied to the host.
    to_host: bool = False
    # What the caller's stream holds comes before the hash.
    stream: Any = None


class Placement:
    """The rules, for one hasher: what it was told, and what its machine is good at."""

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
        """Take the machine's own rates; until then it is assumed to be a slow one."""
        self._rates = rates(gpu_in_use())

    def is_inline(self, load: ItemCost, algorithm: Algorithm) -> bool:
        """Whether to hash it here and now costs less than to ask somebody else."""
        if load.device is not None or not load.in_place:
            return False
        known = self._rates
        seconds = (load.parts - 1) * known.call + load.nbytes / known.cpu(algorithm)
        return seconds <= INLINE_SECONDS

    def of(self, load: ItemCost, algorithm: Algorithm) -> Device:
        """Where an item goes that is not hashed on the loop."""
        if load.device is not None:
            return Device(to_host=self._pinned == "cpu", stream=current_stream(load.device))
        if load.parts > 1 or not load.in_place:
            return Device()
        if self._number is not None:
            return Device(through=self._number)
        if self._pinned == "auto" and self._gpu_is_faster(load.nbytes, algorithm):
            return Device(through=gpu_in_use())
        return Device()

    def _gpu_is_faster(self, nbytes: int, algorithm: Algorithm) -> bool:
        known = self._rates
        if not known.gpu(algorithm):
            return False
        by_gpu = known.gpu_call + nbytes / known.gpu(algorithm)
        return by_gpu < nbytes / (known.cpu(algorithm) * self._threads)


def hash_on(
    place: Device, item: Any, algorithm: Algorithm, tenant: bytes | None, threads: int
) -> Digest:
    """The key of an item, taken where it was placed; it blocks."""
    with after(place.stream):
        if place.through is None:
            item = on_host(item) if place.to_host else item
            return key(item, algorithm=algorithm, tenant=tenant, threads=threads)
        view = view_of(item)
        content = digest_through(place.through, view.on_host(), algorithm)
        return frame(view.kind, view.dtype, view.shape, content, view.extra, tenant=tenant)


def facts() -> Iterator[tuple[str, str]]:
    """What `mmhash env` says: the rates, and what follows from them."""
    yield "device", os.environ.get("MMHASH_DEVICE", "auto")
    try:
        gpu = gpu_in_use()
    except Exception:  # noqa: BLE001  (a broken torch is told of elsewhere)
        gpu = None
    known = rates(gpu)
    for name in ALGORITHMS:
        here, there = known.cpu(name), known.gpu(name)
        inline = int(INLINE_SECONDS * here) >> 10
        by_gpu = f", through GPU {gpu} {there / 1e9:.1f} GB/s" if there else ""
        yield f"{name} rate", f"{here / 1e9:.1f} GB/s a thread, inline to {inline} KiB{by_gpu}"


def _parse_device(device: str) -> tuple[str, int | None]:
    """auto, cpu or cuda, and of the last its number; the variable counts where nobody chose."""
    if not isinstance(device, str):
        raise InputTypeError(f"device is a str, not {type(device).__name__}")
    chosen = os.environ.get("MMHASH_DEVICE", "auto") if device == "auto" else device
    match = _DEVICE.fullmatch(chosen)
    if match is None:
        raise InputValueError(f"device is auto, cpu, cuda or cuda:<number>, not {chosen!r}")
    if not chosen.startswith("cuda"):
        return chosen, None
    return "cuda", int(match["number"] or 0)
