"""Does the service keep the speed of the server beneath it, and answer others meanwhile?

The load comes from the same machine, by processes of their own. `--plot` draws what was kept.
"""

import csv
import http.client
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from bench.measure import RESULTS, Row, report

MIB = 1 << 20
RAW = "application/octet-stream"
ROUNDS = 5


class Server(NamedTuple):
    """A server that answers, in a process of its own."""

    process: subprocess.Popen[str]
    port: int

    def peak_mib(self) -> float:
        """The most memory that the process had at once."""
        with open(f"/proc/{self.process.pid}/status") as status:  # noqa: PTH123  (no file)
            (line,) = (line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024


@contextmanager
def serving(workers: int = 1) -> Iterator[Server]:
    """The service, and beside its calls the plain handlers that it is compared with."""
    command = [sys.executable, "-m", "bench.http", "serve", str(workers)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "running on" in line)
        port = int(line.split("http://127.0.0.1:")[1].split()[0])
        # The log goes on, and has to go somewhere.
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        try:
            wait_until_ready(port, workers)
            yield Server(process, port)
        finally:
            process.terminate()
            process.wait()
            drain.wait()


def wait_until_ready(port: int, workers: int) -> None:
    """Ask until it answers; several workers take their time to start."""
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 10) as connection:
                connection.sendall(b"GET /ready HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
                if connection.recv(1000).startswith(b"HTTP/1.1 200"):
                    break
        except OSError:
            time.sleep(0.05)
    time.sleep(2.0 * (workers - 1))


def serve(workers: int) -> None:
    """What the process of `serving` does."""
    from mmhash_service.server import server  # noqa: PLC0415  (not for the load's process)
    from mmhash_service.settings import Settings  # noqa: PLC0415

    server.create_app = with_plain_handlers  # type: ignore[assignment, attr-defined]
    server.serve(Settings(port=0, workers=workers, shm=True))


def with_plain_handlers(settings: Any) -> Any:
    """The app, and what it is compared with."""
    from fastapi import Request  # noqa: PLC0415  (as above)

    import mmhash  # noqa: PLC0415
    from mmhash_service.app import create_app  # noqa: PLC0415

    app = create_app(settings)

    async def count(request: Request) -> dict[str, int]:
        nbytes = 0
        async for piece in request.stream():
            nbytes += len(piece)
        return {"nbytes": nbytes}

    async def whole(request: Request) -> dict[str, str]:
        return {"digest": mmhash.digest(await request.body()).hex()}

    async def empty() -> dict[str, int]:
        return {}

    for path, handler in (("/count", count), ("/whole", whole), ("/empty", empty)):
        handler.__annotations__ |= {"request": Request} if path != "/empty" else {}
        app.post(path)(handler)
    return app


def load(port: int, path: str, nbytes: int, connections: int, seconds: float) -> dict[str, Any]:
    """How fast that many connections are answered, measured by a process of its own."""
    asked = [port, path, nbytes, connections, seconds]
    command = [sys.executable, "-m", "bench.http", "load", json.dumps(asked)]
    return json.loads(subprocess.check_output(command))  # type: ignore[no-any-return]


class _Connection:
    """One keep-alive connection that sends a body, waits for the answer, and begins again."""

    def __init__(self, port: int, head: bytes, file: int, nbytes: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._head, self._file, self._nbytes = head, file, nbytes
        self.begin()

    def begin(self) -> None:
        self.started = time.perf_counter()
        self._sent = -len(self._head)
        self._answer = b""

    def send(self) -> bool:
        """Send what fits; whether all is sent."""
        try:
            if self._sent < 0:
                self._sent += self.socket.send(self._head[self._sent :], socket.MSG_MORE)
            while 0 <= self._sent < self._nbytes:
                # From the page cache: the load should cost as little as it can.
                self._sent += os.sendfile(
                    self.socket.fileno(),
                    self._file,
                    self._sent,
                    min(MIB, self._nbytes - self._sent),
                )
        except BlockingIOError:
            pass
        return self._sent == self._nbytes

    def receive(self) -> bool:
        """Read what has come; whether the answer is whole."""
        self._answer += self.socket.recv(65536)
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end:
            return False
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return False
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self._answer.decode())
        return True


def generate(port: int, path: str, nbytes: int, connections: int, seconds: float) -> dict[str, Any]:
    """What the process of `load` does: calls and seconds, and how long each took."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {RAW}\r\n"
        f"Content-Length: {nbytes}\r\n\r\n"
    ).encode()
    file = os.memfd_create("body")
    os.write(file, os.urandom(nbytes) or b"")
    poll = select.epoll()
    by_file = {}
    for _ in range(connections):
        connection = _Connection(port, head, file, nbytes)
        by_file[connection.socket.fileno()] = connection
        poll.register(connection.socket.fileno(), select.EPOLLOUT)
    took: list[float] = []
    start = time.perf_counter()
    end = start + seconds
    open_calls = connections
    last = start
    while open_calls:
        for number, _ in poll.poll():
            connection = by_file[number]
            if connection.send() is False:
                continue
            poll.modify(number, select.EPOLLIN)
            try:
                if not connection.receive():
                    continue
            except BlockingIOError:
                continue
            last = time.perf_counter()
            took.append(last - connection.started)
            if last >= end:
                open_calls -= 1
                poll.unregister(number)
                continue
            connection.begin()
            poll.modify(number, select.EPOLLIN if connection.send() else select.EPOLLOUT)
    return {"calls": len(took), "seconds": last - start, "p50": statistics.median(took)}


def probe(port: int, seconds: float) -> list[float]:
    """How long `/health` takes, asked every 5 ms by a process of its own."""
    command = [sys.executable, "-m", "bench.http", "probe", json.dumps([port, seconds])]
    return json.loads(subprocess.check_output(command))  # type: ignore[no-any-return]


def ask_health(port: int, seconds: float) -> list[float]:
    """What the process of `probe` does."""
    took = []
    end = time.perf_counter() + seconds
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while (start := time.perf_counter()) < end:
        connection.request("GET", "/health")
        connection.getresponse().read()
        took.append(time.perf_counter() - start)
        time.sleep(0.005)
    connection.close()
    return took


def rows() -> list[Row]:
    """Every figure that the docs quote of the service."""
    with serving() as server:
        one = [
            *throughput(server, 1, ">= 0.85"),
            *throughput(server, 4, ">= 0.85"),
            *throughput(server, 128, ">= 0.75"),
        ]
    with serving() as server:
        many = [*while_128_are_in_flight(server), *small(server), *in_place(server)]
    return [*one, *many, *workers()]


def long_bodies(server: Server, path: str, connections: int) -> float:
    """How many GB of 20 MiB bodies are answered a second."""
    answered = load(server.port, path, 20 * MIB, connections, 1.5)
    return float(answered["calls"] * 20 * MIB / answered["seconds"] / 1e9)


def short_bodies(server: Server, path: str) -> float:
    """How many bodies of 1 KiB are answered a second."""
    answered = load(server.port, path, 1024, 32, 1.5)
    return float(answered["calls"] / answered["seconds"])


def turns(calls: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> list[float]:
    """The median of each, taken in turns, so that a busy moment meets all of them."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(call())
    return [statistics.median(values) for values in found.values()]


def throughput(server: Server, connections: int, asked: str) -> list[Row]:
    """20 MiB bodies, beside an endpoint that reads and counts them."""
    calls = {
        path: partial(long_bodies, server, path, connections)
        for path in ("/hash", "/count", "/whole")
    }
    ours, count, whole = turns(calls)
    what = f"20 MiB bodies, {connections} at once"
    return [
        Row(what, ours, "GB/s", "read and count", count, ours / count, asked),
        Row(what, ours, "GB/s", "body() and hash", whole, ours / whole),
    ]


def while_128_are_in_flight(server: Server) -> list[Row]:
    """The process's memory, and how long others wait, while 128 bodies of 20 MiB come."""
    ours = p99_under_load(server, "/hash")
    peak = server.peak_mib()
    with serving() as other:
        whole = p99_under_load(other, "/whole")
        whole_peak = other.peak_mib()
    what = "/health p99 beside 128 bodies"
    return [
        Row("memory with 128 bodies", peak, "MiB", "body()", whole_peak, asked="<= 300 MiB"),
        Row(what, ours, "ms", "body()", whole, ours / whole, asked="<= 120 ms, <= 0.2"),
    ]


def p99_under_load(server: Server, path: str) -> float:
    """In milliseconds."""
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, server.port, path, 20 * MIB, 128, 8)
        time.sleep(2)  # until all 128 are there
        took = probe(server.port, 5)
        loading.result()
    return sorted(took)[int(len(took) * 0.99)] * 1e3


def small(server: Server) -> list[Row]:
    """1 KiB bodies, beside a handler of the same server that does nothing."""
    calls = {path: partial(short_bodies, server, path) for path in ("/hash", "/empty")}
    ours, empty = turns(calls, 7)
    return [
        Row("1 KiB bodies, 32 at once", ours, "/s", "empty POST", empty, ours / empty, ">= 0.7")
    ]


def in_place(server: Server) -> list[Row]:
    """A tensor of 20 MiB by its handle, beside its bytes: one plain client, call after call."""
    import numpy as np  # noqa: PLC0415  (not for the load's processes)

    from mmhash.transport import SharedPool, SharedTensor  # noqa: PLC0415  (as above)

    content = np.random.default_rng(0).integers(0, 256, 20 * MIB, dtype=np.uint8)
    nonce = os.urandom(32)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def milliseconds(body: Any, content_type: str) -> float:
        start = time.perf_counter()
        connection.request("POST", "/hash", body, {"Content-Type": content_type})
        answer = connection.getresponse()
        assert answer.read().startswith(b'{"items":[{')
        return (time.perf_counter() - start) * 1e3

    pool = SharedPool(64 * MIB)

    def by_handle(tensor: SharedTensor) -> float:
        items = [{"kind": "tensor", "shm": tensor.handle()}]
        return milliseconds(json.dumps({"items": items, "proof": proof}), "application/json")

    def laid_down_first() -> float:
        start = time.perf_counter()
        tensor = pool.lease(content)
        return (time.perf_counter() - start) * 1e3 + by_handle(tensor)

    with SharedTensor.create(content) as alone, SharedTensor.create(nonce) as segment:
        proof = {"nonce": nonce.hex(), "shm": segment.handle()}
        calls: dict[str, Callable[[], float]] = {
            "a body": partial(milliseconds, content.data, RAW),
            "in a pool": lambda: by_handle(pool.lease(content)),
            "copied into a pool": laid_down_first,
            "in a segment of its own": lambda: by_handle(alone),
        }
        body, *others = turns(calls, 31)
    connection.close()
    asked = (">= 5", "", "")
    return [
        Row(f"20 MiB {what}", took, "ms", "as a body", body, body / took, bar)
        for what, took, bar in zip(list(calls)[1:], others, asked, strict=True)
    ]


def workers() -> list[Row]:
    """Two processes beside one."""
    found: dict[int, dict[str, float]] = {}
    for count in (1, 2):
        with serving(count) as server:
            calls: dict[str, Callable[[], float]] = {
                "1 KiB": partial(short_bodies, server, "/hash"),
                "20 MiB": partial(long_bodies, server, "/hash", 16),
            }
            found[count] = dict(zip(calls, turns(calls), strict=True))
    asked = ">= 1.6 where the load leaves room"
    return [
        Row(f"{what} bodies, 2 workers", two, unit, "1 worker", one, two / one, asked)
        for what, unit in (("1 KiB", "/s"), ("20 MiB", "GB/s"))
        for one, two in [(found[1][what], found[2][what])]
    ]


def plot() -> None:
    """Draw bench/results/http.svg from http.csv."""
    import matplotlib as mpl  # noqa: PLC0415  (to draw alone)

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    with (RESULTS / "http.csv").open() as file:
        found = [row for row in csv.DictReader(file) if row["ratio"]]
    figure, axes = plt.subplots(figsize=(9, 0.5 * len(found) + 1.2))
    for at, row in enumerate(reversed(found)):
        ratio = float(row["ratio"])
        axes.barh(at, ratio, color="tab:blue", height=0.6)
        told = f" {float(row['value']):.3g} {row['unit']}; peer {float(row['peer_value']):.3g}"
        axes.text(ratio, at, told, va="center", size=8)
    axes.set_yticks(range(len(found)))
    axes.set_yticklabels([f"{row['what']} / {row['peer']}" for row in reversed(found)], size=8)
    axes.set(xscale="log", xlabel="ratio to the peer", xlim=(0.02, 100))
    axes.axvline(1, color="gray", lw=0.8)
    axes.set_title("The HTTP service beside plain handlers of the same server")
    figure.tight_layout()
    figure.savefig(RESULTS / "http.svg", metadata={"Date": None})


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            report("http", rows())
        case ["--plot"]:
            plot()
        case ["serve", workers_asked]:
            serve(int(workers_asked))
        case ["load", asked]:
            print(json.dumps(generate(*json.loads(asked))))
        case ["probe", asked]:
            print(json.dumps(ask_health(*json.loads(asked))))
