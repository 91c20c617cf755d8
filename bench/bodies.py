"""Compares the service, on long bodies, with a handler on stock uvicorn that only counts bytes.

The two receive the same load in turns. Each pair of rounds gives a ratio, and a row has the median
ratio. The last rows show the limit: a loop that receives bodies and does nothing else.
"""

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import NamedTuple

from bench.support.load import MIB, Address, load, probe
from bench.support.measure import Row, report
from bench.support.servers import Server, free_port, run_module

NBYTES = 20 * MIB
PAIRS = 7
SECONDS = 1.5


class Target(NamedTuple):
    """A server, and the path and framing of the bodies that it gets."""

    address: Address
    path: str
    chunked: bool = False

    def rate(self, connections: int) -> float:
        """Return how many GB the server receives and answers in a second."""
        done = load(self.address, self.path, NBYTES, connections, SECONDS, chunked=self.chunked)
        return float(done["requests"] * NBYTES / done["seconds"] / 1e9)


def rows() -> list[Row]:
    """Measure all rows. Memory and latency are measured on a server of their own."""
    with servers() as (ours, stock, bare):
        hash_ = Target(ours.port, "/hash")
        count = Target(stock.port, "/count")
        limit = Target(bare.port, "/")
        xxh3 = Target(ours.port, "/hash?algorithm=xxh3")
        result = [
            *compare("", hash_, count, {1: ">= 1.6", 4: ">= 2.2", 128: ">= 2.2"}),
            *compare(", xxh3", xxh3, count, {4: ""}),
            *compare(
                ", chunked", hash_._replace(chunked=True), count._replace(chunked=True), {4: ""}
            ),
            *compare(
                ", of a bare receive loop",
                hash_,
                limit,
                {1: ">= 0.75", 4: ">= 0.75", 128: ">= 0.75"},
            ),
            *cpu_of_128(ours, stock, bare),
        ]
    result += unix_sockets()
    return [*result, *with_128()]


def compare(what: str, ours: Target, peer: Target, targets: dict[int, str]) -> list[Row]:
    """Measure pairs at several numbers of connections."""
    result = []
    for connections, target in targets.items():
        pairs = [(ours.rate(connections), peer.rate(connections)) for _ in range(PAIRS)]
        ratio = median(one / other for one, other in pairs)
        one, other = (median(values) for values in zip(*pairs, strict=True))
        name = "receive loop" if "bare" in what else "count on stock uvicorn"
        result.append(
            Row(f"20 MiB, {connections} at once{what}", one, "GB/s", name, other, ratio, target)
        )
    return result


def cpu_of_128(ours: Server, stock: Server, bare: Server) -> list[Row]:
    """Compare the CPU time of the servers, which limits their rates."""
    peers = {"count on stock uvicorn": (stock, "/count"), "receive loop": (bare, "/")}
    hashing = cpu_per_gb(ours, "/hash")
    return [
        Row("CPU for 20 MiB, 128 at once", hashing, "s/GB", name, other, other / hashing)
        for name, (server, path) in peers.items()
        for other in [cpu_per_gb(server, path)]
    ]


def cpu_per_gb(server: Server, path: str) -> float:
    """Return the median CPU seconds that the server takes for a GB of bodies."""
    costs = []
    for _ in range(PAIRS):
        before = server.cpu_s()
        done = load(server.port, path, NBYTES, 128, SECONDS)
        costs.append((server.cpu_s() - before) / (done["requests"] * NBYTES / 1e9))
    return float(median(costs))


def unix_sockets() -> list[Row]:
    """Measure both on Unix sockets."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ours, stock = f"{folder}/ours", f"{folder}/stock"
        stack.enter_context(run_module("mmhash", "serve", "--uds", ours))
        stack.enter_context(run_module("bench.support.stock_uvicorn", stock))
        return compare(", Unix socket", Target(ours, "/hash"), Target(stock, "/count"), {4: ""})


def with_128() -> list[Row]:
    """Measure memory, and the latency of /health, while 128 bodies are received."""
    with servers() as (ours, stock, _):
        mine, theirs = (p99(server, path) for server, path in ((ours, "/hash"), (stock, "/count")))
        memory = Row("memory with 128 bodies", ours.peak_mib(), "MiB", target="<= 130 MiB")
        peak = stock.peak_mib()
    return [
        memory._replace(peer="count on stock uvicorn", peer_value=peak, ratio=peak / memory.value),
        Row(
            "/health p99 during 128 bodies",
            mine,
            "ms",
            "count on stock uvicorn",
            theirs,
            theirs / mine,
            ">= 2",
        ),
    ]


def p99(server: Server, path: str) -> float:
    """Return the 99th percentile of /health in milliseconds, under 128 connections."""
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, server.port, path, NBYTES, 128, 8)
        time.sleep(2)  # until all 128 are in flight
        times = sorted(probe(server.port, 5))
        loading.result()
    return times[int(len(times) * 0.99)] * 1e3


@contextmanager
def servers() -> Iterator[tuple[Server, Server, Server]]:
    """Run the service, stock uvicorn and the receive loop."""
    with ExitStack() as stack:
        yield (
            stack.enter_context(run_module("mmhash", "serve", "--port", "0")),
            stack.enter_context(run_module("bench.support.stock_uvicorn", str(free_port()))),
            stack.enter_context(run_module("bench.support.receive_loop", str(free_port()))),
        )


if __name__ == "__main__":
    report("bodies", rows())
