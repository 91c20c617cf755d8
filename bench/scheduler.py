"""Compares where a server can hash images: in the scheduler, on the tokenizer's loop, in threads.

There are three processes, as in SGLang. Clients connect to a tokenizer, an asyncio server whose
features are in shared memory. A scheduler maps them and runs a loop of steps. In one mode, a fourth
process, the HTTP service, receives the handles of the features. During a step the scheduler sleeps
for as long as a GPU would compute. The process that hashes reads all bytes of every request. No two
requests use the same buffer at the same time, so nothing is shared or cached.

`python -m bench.scheduler` is a quick run. `--full` is the run that the docs quote, and `--plot`
draws its results.
"""

import argparse
import asyncio
import gc
import hashlib
import itertools
import multiprocessing as mp
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

import mmhash
from bench.support.measure import keep
from bench.support.servers import run_module
from mmhash.executor import AsyncHasher
from mmhash.transport import SharedTensor

# The number of steps that a request takes.
STEPS = 32
BURSTS = 5

MODES = {
    "none": "no hash at all",
    "scheduler sha256": "in the scheduler, as SGLang's CPU path",
    "loop sha256": "sha256 on the tokenizer's loop",
    "loop mmhash": "mmhash.key on the tokenizer's loop",
    "executor sha256": "SGLang 0.5.23's own executor: two threads",
    "AsyncHasher": "mmhash.AsyncHasher",
    "service": "the HTTP service, by handles",
}

Handle = dict[str, Any]


class Load(NamedTuple):
    """The requests to the server, and the seconds of a step."""

    requests: int
    concurrency: int
    nbytes: int
    step: float


class Figures(NamedTuple):
    """The result of a mode, in requests a second, milliseconds and MiB."""

    mode: str
    round: int
    requests_per_second: float
    first_step_p50: float
    first_step_p99: float
    step_p99: float
    accept_p99: float
    longest_stall: float
    burst_stall: float  # with all features at once, and no clients
    memory_above_payloads: float


def percentile(values: list[float], part: float) -> float:
    """Return the value that this fraction of all values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


class Feature:
    """A feature in shared memory. Every page is touched first, so later reads do not fault."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.array = SharedTensor.open(handle).array()
        self.array[:: resource.getpagesize()].max()


def sha256(feature: Feature) -> bytes:
    """Return SGLang's hash of a feature on the CPU."""
    return hashlib.sha256(feature.array.data).digest()[:8]


def scheduler(buffers: list[Handle], load: Load, pipe: Connection, *, hashes: bool) -> None:
    """Run steps until the tokenizer stops, then send the duration of each."""
    features = [Feature(handle) for handle in buffers]
    running: dict[int, int] = {}
    taken: list[float] = []
    pipe.send(None)  # ready
    stop = False
    last = time.perf_counter()
    while not stop:
        while pipe.poll():
            message = pipe.recv()
            if message is None:
                stop = True
                break
            number, buffer, key = message
            if key is None and hashes:
                sha256(features[buffer])
            running[number] = 0
        time.sleep(load.step)
        first, done = [], []
        for number, steps in running.items():
            running[number] = steps + 1
            if steps == 0:
                first.append(number)
            if steps == STEPS - 1:
                done.append(number)
        for number in done:
            del running[number]
        if first or done:
            pipe.send((first, done))
        now = time.perf_counter()
        if running or done:
            taken.append(now - last)
        last = now
    pipe.send(taken)


Hash = Callable[[Feature], Awaitable[bytes | None]]


def hash_of(
    mode: str, hasher: AsyncHasher, pool: ThreadPoolExecutor, client: httpx.AsyncClient
) -> Hash:
    """Return the function that hashes a feature in the tokenizer in this mode."""
    slots = asyncio.Semaphore(2)

    async def nothing(_: Feature) -> None:
        return None

    async def loop_sha256(feature: Feature) -> bytes:
        return sha256(feature)

    async def loop_mmhash(feature: Feature) -> bytes:
        return mmhash.key(feature.array).bytes

    async def executor_sha256(feature: Feature) -> bytes:
        async with slots:
            return await asyncio.get_running_loop().run_in_executor(pool, sha256, feature)

    async def off_the_loop(feature: Feature) -> bytes:
        return (await hasher.key(feature.array)).bytes

    async def by_service(feature: Feature) -> bytes:
        items = [{"kind": "tensor", "shm": feature.handle}]
        answer = await client.post("/hash", json={"items": items}, timeout=60)
        return bytes.fromhex(answer.raise_for_status().json()["items"][0]["key"])

    return {
        "none": nothing,
        "scheduler sha256": nothing,
        "loop sha256": loop_sha256,
        "loop mmhash": loop_mmhash,
        "executor sha256": executor_sha256,
        "AsyncHasher": off_the_loop,
        "service": by_service,
    }[mode]


class Tokenizer:
    """A server that sends `A` on accepting, `F` after the first step, and `D` after the last."""

    def __init__(self, buffers: list[Handle], pipe: Connection, hashed: Hash) -> None:
        self._features = [Feature(handle) for handle in buffers]
        self._free = list(range(len(buffers)))
        self._pipe = pipe
        self._hash = hashed
        self._first: dict[int, asyncio.Event] = {}
        self._done: dict[int, asyncio.Event] = {}
        self._numbers = itertools.count()
        self.longest_stall = 0.0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request."""
        writer.write(b"A")
        await writer.drain()
        await reader.readexactly(1)
        number, buffer = next(self._numbers), self._free.pop()
        self._first[number], self._done[number] = asyncio.Event(), asyncio.Event()
        key = await self._hash(self._features[buffer])
        self._pipe.send((number, buffer, key))
        await self._first[number].wait()
        writer.write(b"F")
        await self._done[number].wait()
        self._free.append(buffer)
        del self._first[number], self._done[number]
        writer.write(b"D")
        writer.close()

    def receive(self) -> None:
        """Handle a message of the scheduler."""
        first, done = self._pipe.recv()
        for number in first:
            self._first[number].set()
        for number in done:
            self._done[number].set()

    async def burst(self) -> float:
        """Hash all features at once, without clients, and return the longest stall.

        This is the median of several bursts, because the machine has stalls of its own. The mode
        without hashing measures those.
        """
        stalls = []
        for _ in range(BURSTS):
            await asyncio.sleep(0.1)
            self.longest_stall = 0
            await asyncio.gather(asyncio.sleep(0.3), *map(self._hash, self._features))
            stalls.append(self.longest_stall)
        return statistics.median(stalls)

    async def tick(self) -> None:
        """Sleep a millisecond at a time, and record the longest delay."""
        while True:
            start = time.perf_counter()
            await asyncio.sleep(1e-3)
            self.longest_stall = max(self.longest_stall, time.perf_counter() - start - 1e-3)


class Ends(NamedTuple):
    """The pipes and sockets of the tokenizer."""

    scheduler: Connection
    control: Connection
    path: str
    service: str


def tokenizer(buffers: list[Handle], ends: Ends, mode: str) -> None:
    """Serve until the control pipe says stop, then send the longest stalls and the memory used."""
    pipe, control, path, service = ends

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        transport = httpx.AsyncHTTPTransport(uds=service)
        with ThreadPoolExecutor(2) as pool:
            async with (
                AsyncHasher() as hasher,
                httpx.AsyncClient(transport=transport, base_url="http://service") as client,
            ):
                await hasher.keys([])  # let the hasher measure the machine
                gc.freeze()  # as SGLang's servers do, because a full collection blocks the loop
                server = Tokenizer(buffers, pipe, hash_of(mode, hasher, pool, client))
                ticking = asyncio.create_task(server.tick())
                before = memory_mib("VmRSS")
                burst = await server.burst()
                server.longest_stall = 0
                loop.add_reader(pipe.fileno(), server.receive)
                stopped = asyncio.Event()
                loop.add_reader(control.fileno(), stopped.set)
                listening = await asyncio.start_unix_server(server.accept, path, backlog=1024)
                control.send(None)  # ready
                await stopped.wait()
                control.recv()
                ticking.cancel()
                listening.close()
                loop.remove_reader(pipe.fileno())
                control.send((server.longest_stall, burst, memory_mib("VmHWM") - before))

    asyncio.run(serve())


def memory_mib(field: str) -> float:
    """Return the resident memory (VmRSS) or its peak (VmHWM) of this process, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


async def clients(path: str, load: Load) -> tuple[float, list[float], list[float]]:
    """Send the requests. Return the total seconds, and the seconds until accepted and started."""
    accepted: list[float] = []
    first: list[float] = []
    left = iter(range(load.requests))

    async def client(number: int) -> None:
        # Stagger the first requests: clients that start together would stay synchronised.
        await asyncio.sleep(number / load.concurrency * STEPS * load.step)
        for _ in left:
            start = time.perf_counter()
            reader, writer = await asyncio.open_unix_connection(path)
            await reader.readexactly(1)
            accepted.append(time.perf_counter() - start)
            writer.write(b"G")
            await reader.readexactly(1)
            first.append(time.perf_counter() - start)
            await reader.readexactly(1)
            writer.close()

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(load.concurrency):
            group.create_task(client(number))
    return time.perf_counter() - start, accepted, first


def run(mode: str, number: int, load: Load, buffers: list[Handle]) -> Figures:
    """Run one mode in its own processes."""
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    control, controlled = context.Pipe()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path, service = str(Path(folder, "socket")), str(Path(folder, "service"))
        if mode == "service":
            stack.enter_context(run_module("mmhash", "serve", "--uds", service))
        hashes = mode == "scheduler sha256"
        scheduling = context.Process(
            target=scheduler, args=(buffers, load, theirs), kwargs={"hashes": hashes}
        )
        tokenizing = context.Process(
            target=tokenizer, args=(buffers, Ends(ours, controlled, path, service), mode)
        )
        scheduling.start()
        ours.recv()
        tokenizing.start()
        control.recv()
        seconds, accepted, first = asyncio.run(clients(path, load))
        control.send(None)
        stall, burst, memory = control.recv()
        tokenizing.join()
        ours.send(None)
        while not isinstance(taken := ours.recv(), list):
            pass
        scheduling.join()
    return Figures(
        mode,
        number,
        load.requests / seconds,
        1e3 * statistics.median(first),
        1e3 * percentile(first, 0.99),
        1e3 * percentile(taken, 0.99),
        1e3 * percentile(accepted, 0.99),
        1e3 * stall,
        1e3 * burst,
        memory,
    )


def rounds(load: Load, count: int) -> list[Figures]:
    """Run all modes in turn, several times. A round unlike the others shows a busy moment."""
    content = np.random.default_rng(0).integers(0, 256, load.nbytes, dtype=np.uint8)
    shared = []
    for index in range(load.concurrency):
        content[:8] = np.frombuffer(index.to_bytes(8, "little"), np.uint8)
        shared.append(SharedTensor.create(content))
    results = []
    for number in range(count):
        for mode in MODES:
            results.append(run(mode, number, load, [one.handle() for one in shared]))
            print_figures(results[-1])
    return results


def print_figures(figures: Figures) -> None:
    """Print one line, and above the first the column names."""
    if figures.mode == next(iter(MODES)):
        heads = ("req/s", "first p50", "p99", "step p99", "accept p99", "stall", "burst", "MiB")
        print(" " * 16 + "".join(f"{head:>11}" for head in heads))
    print(f"{figures.mode:<16}" + "".join(f"{value:>11.2f}" for value in figures[2:]), flush=True)


def medians(results: list[Figures]) -> dict[str, Figures]:
    """Return the figures of each mode, as medians of its rounds."""
    by_mode = {mode: [row for row in results if row.mode == mode] for mode in MODES}
    return {
        mode: Figures(mode, len(rows), *map(statistics.median, list(zip(*rows, strict=True))[2:]))
        for mode, rows in by_mode.items()
    }


def print_verdict(results: list[Figures]) -> None:
    """Print the figures that have a target, each with its target."""
    by_mode = medians(results)
    ours, none, in_scheduler = by_mode["AsyncHasher"], by_mode["none"], by_mode["scheduler sha256"]
    throughput = ours.requests_per_second / in_scheduler.requests_per_second
    accept = {mode: ours.accept_p99 / by_mode[mode].accept_p99 for mode in MODES}
    lines = [
        ("throughput, of the scheduler's hash", throughput, ">= 1.15"),
        ("step p99, of a run without hashing", ours.step_p99 / none.step_p99, "<= 1.10"),
        ("accept p99, of sha256 on the loop", accept["loop sha256"], "<= 0.2"),
        ("accept p99, of mmhash on the loop", accept["loop mmhash"], "<= 0.2"),
        ("longest stall of a burst, ms", ours.burst_stall, "< 3"),
        ("memory above the payloads, MiB", ours.memory_above_payloads, "< 64"),
    ]
    for what, value, target in lines:
        print(f"{what:<40}{value:>8.3f}  {target}")


def plot(results: list[Figures]) -> None:
    """Draw bench/results/scheduler.svg."""
    from bench.support.plot import plt, save  # noqa: PLC0415  (matplotlib is not needed to measure)

    by_mode = medians(results)
    panels = {
        "requests_per_second": "requests a second",
        "step_p99": "the scheduler's step, p99, ms",
        "accept_p99": "until a connection is accepted, p99, ms",
        "burst_stall": "longest stall of the loop, 128 at once, ms",
    }
    figure, rows = plt.subplots(1, len(panels), figsize=(14, 3.2), sharey=True)
    for axes, (name, title) in zip(rows, panels.items(), strict=True):
        values = [getattr(by_mode[mode], name) for mode in MODES]
        colors = ["tab:green" if mode == "AsyncHasher" else "tab:gray" for mode in MODES]
        axes.barh(list(MODES), values, color=colors)
        axes.bar_label(axes.containers[0], fmt="%.3g", padding=2, fontsize=8)
        axes.set_title(title, fontsize=9)
        axes.margins(x=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    rows[0].invert_yaxis()
    save(figure, "scheduler")


def main() -> None:
    """Run the modes. Print, write and draw the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="1024 requests, 128 at a time")
    parser.add_argument("--step", type=float, default=20, help="a step, in milliseconds")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--plot", action="store_true")
    options = parser.parse_args()
    requests, concurrency = (1024, 128) if options.full else (128, 32)
    load = Load(requests, concurrency, 20 << 20, options.step / 1e3)
    results = rounds(load, options.rounds)
    print_verdict(results)
    keep("scheduler", results)
    if options.plot:
        plot(results)


if __name__ == "__main__":
    main()
