"""The memory and descriptors of the services' processes, second by second."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.soak.environment import Service


class Usage(NamedTuple):
    """The total of a service's processes; each has its part of pages that they share.

    Pages of files are not counted: other programs share the libraries, and when one of them exits
    the parts of all others grow (by 10 MiB in a minute, when other gateways stopped). What clients
    lay into shared memory is theirs: of it the service sees more and more as they use more of their
    pools, and never more than these have.
    """

    memory_mib: float
    clients_mib: float
    descriptors: int


def usage(service: Service) -> Usage:
    """Return their present usage; a process that exits meanwhile counts as nothing."""
    memory_kib, clients_kib, descriptors = 0, 0, 0
    for pid in service.processes:
        with suppress(FileNotFoundError, ProcessLookupError):
            shares = _shares_kib(pid)
            memory_kib += shares["Pss_Anon:"]
            clients_kib += shares["Pss_Shmem:"]
            descriptors += len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  (names alone)
    return Usage(round(memory_kib / 1024, 1), round(clients_kib / 1024, 1), descriptors)


def _shares_kib(pid: int) -> dict[str, int]:
    _, *lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return {name: int(kib) for name, kib, _ in map(str.split, lines)}
