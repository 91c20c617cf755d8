"""Memory and descriptors of a service's processes, second by second, and whether they grow."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

# A line through samples may climb by this part of its level, or by so many standard errors.
_GROWTH, _ERRORS = 0.05, 3.0


class Usage(NamedTuple):
    """The total of a service's processes: a page that they share counts once.

    Pages of files do not count: other programs share the libraries.
    """

    memory_mib: float
    descriptors: int


def usage(pid: int) -> Usage:
    """Return the present usage of a process and all below it."""
    memory_kib, descriptors = 0, 0
    for one in _with_children(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            _, *lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            memory_kib += sum(int(line.split()[1]) for line in lines if "Pss_Anon:" in line)
            descriptors += len(os.listdir(f"/proc/{one}/fd"))  # noqa: PTH208  (names alone)
    return Usage(round(memory_kib / 1024, 1), descriptors)


def _with_children(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid, *(one for child in children for one in _with_children(int(child)))]


class Trend(NamedTuple):
    """A line through samples, by least squares: their mean, how far the line climbs, and its error."""

    level: float
    growth: float
    error: float

    def __str__(self) -> str:
        return f"{self.level:.1f}, growing by {self.growth:+.1f} ± {self.error:.1f}"

    @property
    def is_flat(self) -> bool:
        """True if the line climbs by little, or by no more than noise does."""
        return self.growth < max(_GROWTH * self.level, _ERRORS * self.error)


def second_half(values: Sequence[float]) -> Trend:
    """Return the trend of the second half: by then the processes have grown to their size."""
    samples = np.asarray(values[len(values) // 2 :], float)
    at = np.linspace(-0.5, 0.5, len(samples))
    slope = float(at @ samples / (at @ at))
    left = samples - samples.mean() - slope * at
    error = float(np.sqrt(left @ left / max(1, len(samples) - 2) / (at @ at)))
    return Trend(float(samples.mean()), slope, error)
