"""Compares the service's throughput with plain handlers on the same server, and times `/health`.

The load comes from other processes of the same machine. `--plot` draws the last results.
"""

import csv
import http.client
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.support.load import MIB, load, probe
from bench.support.measure import RESULTS, Row, medians_of, report
from bench.support.servers import Server, run_module, serving
from mmhash.transport import SharedPool, SharedTensor

RAW = "application/octet-stream"

Measurement = Callable[[], float]


def rows() -> list[Row]:
    """Measure every figure for the service that the docs quote."""
    with serving() as server:
        one = [
            *throughput(server, 1, ">= 0.85"),
            *throughput(server, 4, ">= 0.85"),
            *throughput(server, 128, ">= 0.75"),
        ]
    with serving() as server:
        many = [*with_128_in_flight(server), *small(server)]
    return [*one, *many, *in_place(), *processes()]


def long_bodies(server: Server, path: str, connections: int) -> float:
    """Return how many GB of 20 MiB bodies the server receives in a second."""
    figures = load(server.port, path, 20 * MIB, connections, 1.5)
    return float(figures["requests"] * 20 * MIB / figures["seconds"] / 1e9)


def short_bodies(server: Server, path: str) -> float:
    """Return how many 1 KiB bodies the server answers in a second."""
    figures = load(server.port, path, 1024, 32, 1.5)
    return float(figures["requests"] / figures["seconds"])


def throughput(server: Server, connections: int, target: str) -> list[Row]:
    """Compare 20 MiB bodies with an endpoint that only reads and counts them."""
    calls = {
        path: partial(long_bodies, server, path, connections)
        for path in ("/hash", "/count", "/whole")
    }
    ours, count, whole = medians_of(calls)
    what = f"20 MiB bodies, {connections} at once"
    return [
        Row(what, ours, "GB/s", "read and count", count, ours / count, target),
        Row(what, ours, "GB/s", "body() and hash", whole, ours / whole),
    ]


def with_128_in_flight(server: Server) -> list[Row]:
    """Measure memory and the latency of other requests while 128 bodies of 20 MiB are sent."""
    ours = p99_under_load(server, "/hash")
    peak = server.peak_mib()
    with serving() as other:
        whole = p99_under_load(other, "/whole")
        whole_peak = other.peak_mib()
    what = "/health p99 during 128 bodies"
    return [
        Row("memory with 128 bodies", peak, "MiB", "body()", whole_peak, target="<= 300 MiB"),
        Row(what, ours, "ms", "body()", whole, ours / whole, target="<= 120 ms, <= 0.2"),
    ]


def p99_under_load(server: Server, path: str) -> float:
    """Return the 99th percentile of `/health` in milliseconds."""
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, server.port, path, 20 * MIB, 128, 8)
        time.sleep(2)  # until all 128 are in flight
        times = probe(server.port, 5)
        loading.result()
    return sorted(times)[int(len(times) * 0.99)] * 1e3


def small(server: Server) -> list[Row]:
    """Compare 1 KiB bodies with a handler of the same server that does nothing."""
    calls = {path: partial(short_bodies, server, path) for path in ("/hash", "/empty")}
    ours, empty = medians_of(calls, 7)
    return [
        Row("1 KiB bodies, 32 at once", ours, "/s", "empty POST", empty, ours / empty, ">= 0.7")
    ]


def in_place() -> list[Row]:
    """Compare a 20 MiB tensor by handle with its bytes, sending one request at a time."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "socket"))
        with run_module("mmhash", "serve", "--uds", path):
            connection = http.client.HTTPConnection("localhost")
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(path)
            return _in_place(connection)


def _in_place(connection: http.client.HTTPConnection) -> list[Row]:
    content = np.random.default_rng(0).integers(0, 256, 20 * MIB, dtype=np.uint8)

    def milliseconds(body: Any, content_type: str) -> float:
        start = time.perf_counter()
        connection.request("POST", "/hash", body, {"Content-Type": content_type})
        response = connection.getresponse()
        assert response.read().startswith(b'{"items":[{')
        return (time.perf_counter() - start) * 1e3

    pool = SharedPool(64 * MIB)

    def by_handle(tensor: SharedTensor) -> float:
        items = [{"kind": "tensor", "shm": tensor.handle()}]
        return milliseconds(json.dumps({"items": items}), "application/json")

    def copied_first() -> float:
        start = time.perf_counter()
        tensor = pool.lease(content)
        return (time.perf_counter() - start) * 1e3 + by_handle(tensor)

    with SharedTensor.create(content) as own:
        calls: dict[str, Measurement] = {
            "a body": partial(milliseconds, content.data, RAW),
            "in a pool": lambda: by_handle(pool.lease(content)),
            "copied into a pool": copied_first,
            "in its own segment": lambda: by_handle(own),
        }
        body, *others = medians_of(calls, 31)
    connection.close()
    targets = (">= 5", "", "")
    return [
        Row(f"20 MiB {what}", taken, "ms", "as a body", body, body / taken, target)
        for what, taken, target in zip(list(calls)[1:], others, targets, strict=True)
    ]


def processes() -> list[Row]:
    """Compare two processes with one."""
    figures: dict[int, dict[str, float]] = {}
    for count in (1, 2):
        with serving(count) as server:
            calls: dict[str, Measurement] = {
                "1 KiB": partial(short_bodies, server, "/hash"),
                "20 MiB": partial(long_bodies, server, "/hash", 16),
            }
            figures[count] = dict(zip(calls, medians_of(calls), strict=True))
    target = ">= 1.6 if the load leaves cores free"
    return [
        Row(f"{what} bodies, 2 processes", two, unit, "1 process", one, two / one, target)
        for what, unit in (("1 KiB", "/s"), ("20 MiB", "GB/s"))
        for one, two in [(figures[1][what], figures[2][what])]
    ]


def plot() -> None:
    """Draw bench/results/http.svg from http.csv."""
    from bench.support.plot import plt, save  # noqa: PLC0415  (matplotlib is not needed to measure)

    with (RESULTS / "http.csv").open() as file:
        compared = [row for row in csv.DictReader(file) if row["ratio"]]
    figure, axes = plt.subplots(figsize=(9, 0.5 * len(compared) + 1.2))
    for position, row in enumerate(reversed(compared)):
        ratio = float(row["ratio"])
        axes.barh(position, ratio, color="tab:blue", height=0.6)
        label = f" {float(row['value']):.3g} {row['unit']}; peer {float(row['peer_value']):.3g}"
        axes.text(ratio, position, label, va="center", size=8)
    axes.set_yticks(range(len(compared)))
    axes.set_yticklabels([f"{row['what']} / {row['peer']}" for row in reversed(compared)], size=8)
    axes.set(xscale="log", xlabel="ratio to the peer", xlim=(0.02, 100))
    axes.axvline(1, color="gray", lw=0.8)
    axes.set_title("The HTTP service and plain handlers of the same server")
    save(figure, "http")


if __name__ == "__main__":
    if sys.argv[1:] == ["--plot"]:
        plot()
    else:
        report("http", rows())
