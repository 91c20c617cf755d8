"""The metrics `process_*`: CPU time, memory and descriptors of all processes of the service."""

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

_PROC = Path("/proc")


class _Usage(NamedTuple):
    cpu_s: float
    start_s: float
    resident_bytes: int
    virtual_bytes: int
    descriptors: int


class ProcessTree(Collector):
    """The usage of the supervisor or the single server, and of all processes below it.

    Shared memory counts once for each process. Systems without /proc have no such metrics.
    """

    def collect(self) -> Iterable[Metric]:
        """Read the figures of each process in /proc."""
        usages = [usage for pid in _tree(_root()) if (usage := _usage(pid)) is not None]
        if not usages:
            return
        yield CounterMetricFamily(
            "process_cpu_seconds",
            "CPU time of all processes of the service.",
            value=sum(usage.cpu_s for usage in usages),
        )
        for name, text, value in (
            ("start_time_seconds", "Start of the service.", usages[0].start_s),
            ("resident_memory_bytes", "Resident memory.", sum(u.resident_bytes for u in usages)),
            ("virtual_memory_bytes", "Virtual memory.", sum(u.virtual_bytes for u in usages)),
            ("open_fds", "Open file descriptors.", sum(u.descriptors for u in usages)),
            ("max_fds", "Limit of each process on descriptors.", _max_descriptors()),
        ):
            yield GaugeMetricFamily(f"process_{name}", text, value=value)
        yield GaugeMetricFamily("mmhash_processes", "Running processes.", value=len(usages))


def _root() -> int:
    """Return the supervisor of this process, or this process."""
    parent = multiprocessing.parent_process()
    return os.getpid() if parent is None or parent.pid is None else parent.pid


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in _children(pid):
        yield from _tree(child)


def _children(pid: int) -> list[int]:
    """Return the processes started by the threads of a process."""
    found: list[int] = []
    with suppress(OSError):  # the process has exited
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):  # the thread has ended: other threads may have children
                found += map(int, (thread / "children").read_text().split())
    return found


def _usage(pid: int) -> _Usage | None:
    """Return the usage of a process including its exited children, or None."""
    folder = _PROC / str(pid)
    try:
        # The name of the program, in parentheses, may contain spaces.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        descriptors = sum(1 for _ in os.scandir(folder / "fd"))
    except OSError:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    # Fields 14 to 17, 22, 23 and 24 of proc(5); index 0 is field 3. Including exited children, the
    # sum does not decrease when a decoder or server process is replaced.
    cpu = sum(int(text) for text in fields[11:15]) / ticks
    start = int(fields[19]) / ticks + _boot_time()
    return _Usage(
        cpu, start, int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), int(fields[20]), descriptors
    )


def _boot_time() -> int:
    for line in (_PROC / "stat").read_text().splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    return 0


def _max_descriptors() -> float:
    import resource  # noqa: PLC0415  (not on Windows, which has no /proc either)

    return float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
