"""Compares the KV index with a dict of sets and with Redis: matches, events and memory.

The index has a million blocks of 32 workers. Run `python -m bench.kvindex`; the rows about Redis
need redis-server. A figure is the fastest of many rounds, in CPU time unless it includes a wait for
another process. So other processes of a shared machine hardly affect it.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any

import msgspec
import zmq
from redis import Redis
from redis.exceptions import ConnectionError as NotListening

from bench.support.measure import Row, report
from mmhash.kvindex import Batch, BlocksRemoved, BlocksStored, Index, Worker, parse_batch
from mmhash.kvindex.table import BlockTable, Layout
from tests.support.kv_publisher import PublisherProcess, stored

BLOCKS = 1_000_000
WORKERS = 32
PROMPT = 256
REDIS_BLOCKS = 200_000


Call = Callable[[], object]


def fastest(
    *calls: Call, rounds: int, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Return the fewest seconds of each call. The calls take turns."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, taken, strict=True):
            start = clock()
            call()
            times.append(clock() - start)
    return [min(times) for times in taken]


class SetsTable:
    """The peer: a dict that maps each block to the set of its workers."""

    def __init__(self) -> None:
        self.holders: dict[int, set[int]] = {}

    def store(self, holder: int, ids: Sequence[int]) -> None:
        """Add blocks of a worker."""
        for one in ids:
            self.holders.setdefault(one, set()).add(holder)

    def match(self, ids: Sequence[int]) -> dict[int, int]:
        """Return the leading run of each worker."""
        runs: dict[int, int] = {}
        alive = self.holders.get(ids[0], set()) if ids else set()
        for length, one in enumerate(ids):
            left = alive & self.holders.get(one, set())
            for holder in alive - left:
                runs[holder] = length
            alive = left
            if not alive:
                return runs
        return runs | dict.fromkeys(alive, len(ids))


def ids_of(count: int, seed: int) -> list[int]:
    """Return random ids of blocks."""
    draw = random.Random(seed)
    return [draw.getrandbits(64) for _ in range(count)]


def fill(store: Callable[[int, list[int]], object]) -> None:
    """Store the blocks of all workers, 16 at a time."""
    ids = ids_of(BLOCKS, 0)
    for index in range(0, BLOCKS, 16):
        store(index // 16 % WORKERS, ids[index : index + 16])


def prompts() -> Iterator[tuple[str, list[list[int]]]]:
    """Yield a name, and for each worker the blocks of a prompt that it holds."""
    shared, staircase = ids_of(PROMPT, 1), ids_of(PROMPT, 2)
    yield "all workers have all", [shared] * WORKERS
    part = PROMPT // WORKERS
    yield "each has another part", [staircase[: part * (one + 1)] for one in range(WORKERS)]


def match_rows() -> list[Row]:
    """Time matches of a prompt."""
    index = Index(
        Worker(f"http://{one}", f"tcp://127.0.0.1:{5000 + one}") for one in range(WORKERS)
    )
    for (source,) in index._workers.values():
        source.rank.apply(Batch(0.0, []), is_live=False)
    sets = SetsTable()
    fill(lambda holder, ids: index.table.store(holder, 0, ids, Layout(16)))
    fill(sets.store)
    rows = []
    for name, parts in prompts():
        for holder, ids in enumerate(parts):
            index.table.store(holder, 0, ids, Layout(16))
            sets.store(holder, ids)
        prompt = parts[-1]
        assert index.table.match(prompt) == sets.match(prompt)
        table, whole, peer = fastest(
            lambda prompt=prompt: index.table.match(prompt),  # type: ignore[misc]
            lambda prompt=prompt: index.match(prompt),  # type: ignore[misc]
            lambda prompt=prompt: sets.match(prompt),  # type: ignore[misc]
            rounds=2001,
        )
        what = f"match of {PROMPT} blocks, {name}"
        rows += [
            Row(f"{what}: table", table * 1e6, "µs", "dict of sets", peer * 1e6, peer / table),
            Row(f"{what}: index", whole * 1e6, "µs", target="< 100 µs"),
        ]
    return rows


def batch(count: int, blocks: int, seed: int = 0) -> bytes:
    """Return a batch of events, each of several blocks of 16 tokens, as vLLM publishes it."""
    draw = random.Random(seed)
    events = [
        {
            "type": "BlockStored",
            "block_hashes": [draw.getrandbits(64) for _ in range(blocks)],
            "parent_block_hash": draw.getrandbits(64),
            "token_ids": [draw.randrange(150_000) for _ in range(16 * blocks)],
            "block_size": 16,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": [None] * blocks,
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }
        for _ in range(count)
    ]
    for event in events[::2]:  # and as many that remove
        keys = ("type", "block_hashes", "medium", "group_idx")
        events.append({key: event[key] for key in keys} | {"type": "BlockRemoved"})
    return msgspec.msgpack.encode([time.time(), events[-count:], 0])


def apply(table: BlockTable, payloads: Sequence[bytes]) -> None:
    """Apply batches of the first holder's events."""
    for payload in payloads:
        for event in parse_batch(payload).events:
            if isinstance(event, BlocksStored):
                table.store(0, 0, event.ids)
            elif isinstance(event, BlocksRemoved):
                table.remove(0, 0, event.ids)


def full_table_rows() -> list[Row]:
    """Count events per second in a table of a million blocks, which exceeds a CPU's caches."""
    table = BlockTable(BLOCKS)
    for _ in range(WORKERS):
        table.open()
    fill(lambda holder, ids: table.store(holder, 0, ids))
    rows = []
    for blocks in (1, 16, 64):
        payloads = [batch(100, blocks, seed) for seed in range(50)]
        (taken,) = fastest(lambda payloads=payloads: apply(table, payloads), rounds=10)  # type: ignore[misc]
        rows.append(Row(f"events of {blocks} blocks, beside a million", 5000 / taken, "/s"))
    return rows


def event_rows() -> list[Row]:
    """Count events per second, from bytes to the table."""
    rows = []
    for blocks in (1, 4, 16, 64):
        payloads = [batch(100, blocks, seed) for seed in range(4)]
        table, sets = BlockTable(BLOCKS), SetsTable()
        table.open()

        def ours(table: BlockTable = table, payloads: list[bytes] = payloads) -> None:
            apply(table, payloads)

        def parse(payloads: list[bytes] = payloads) -> None:
            for payload in payloads:
                parse_batch(payload)

        def peer(sets: SetsTable = sets, payloads: list[bytes] = payloads) -> None:
            for payload in payloads:
                for event in msgspec.msgpack.decode(payload)[1]:
                    if event["type"] == "BlockStored":
                        sets.store(0, event["block_hashes"])
                    else:
                        for one in event["block_hashes"]:
                            sets.holders.get(one, set()).discard(0)

        own, parsing, other = (400 / s for s in fastest(ours, parse, peer, rounds=40))
        what = f"events of {blocks} blocks, parsed and applied"
        target = "> 100 000/s" if blocks <= 4 else ""
        label = "every field decoded, none checked, dict of sets"
        rows += [
            Row(what, own, "/s", label, other, own / other, target),
            Row(f"{what}: parsing only", parsing, "/s"),
        ]
    return rows


def socket_rows(batches: int = 3000) -> list[Row]:
    """Count events per second of CPU time over a socket."""
    code = f"from bench.kvindex import publish; publish({batches})"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with Index([Worker("w", process.stdout.readline().strip())]) as index:
        while not index.stats().workers["w"].is_connected:
            time.sleep(0.01)
        start = time.process_time()
        print(file=process.stdin, flush=True)
        while index.stats().workers["w"].batches < batches:
            time.sleep(0.01)
        taken = time.process_time() - start
        process.communicate()
    return [
        Row("events of 4 blocks over a socket", 100 * batches / taken, "/s", target="> 100 000/s")
    ]


def start_rows(workers: int = 8, batches: int = 1000) -> list[Row]:
    """Time how long a new index takes to replay what workers published before it started."""
    with ExitStack() as stack:
        publishers = [stack.enter_context(PublisherProcess()) for _ in range(workers)]
        for one in publishers:
            for number in range(batches):
                one.publish(stored(*range(16 * number, 16 * number + 16)))
        sources = [
            Worker(f"http://{number}", one.events, one.replay)
            for number, one in enumerate(publishers)
        ]
        time.sleep(1)  # until the workers have read their input
        start = time.perf_counter()
        index = stack.enter_context(Index(sources))
        while sum(one.batches for one in index.stats().workers.values()) < workers * batches:
            time.sleep(0.01)
        taken = time.perf_counter() - start
    what = f"{workers} workers with {16 * batches} blocks each, until a new index has them"
    return [Row(what, taken, "s", target="< 1 s")]


def publish(batches: int) -> None:
    """Publish as fast as the socket accepts messages."""
    context = zmq.Context()
    socket = context.socket(zmq.PUB)
    socket.set_hwm(0)
    socket.bind("tcp://127.0.0.1:*")
    print(socket.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
    payloads = [batch(100, 4, seed) for seed in range(20)]
    sys.stdin.readline()
    for number in range(batches):
        socket.send_multipart([b"", number.to_bytes(8, "big"), payloads[number % 20]])
    sys.stdin.readline()
    context.destroy(linger=0)


def memory_rows() -> list[Row]:
    """Measure the memory of a million blocks in each structure, each in its own process."""
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        ours, peer = pool.map(_bytes_per_block, ["table", "sets"], chunksize=1)
    return [Row("memory of a block", ours, "B", "dict of sets", peer, peer / ours)]


def _bytes_per_block(name: str) -> float:
    def rss() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    start = rss()
    table, sets = BlockTable(BLOCKS), SetsTable()
    if name == "sets":
        fill(sets.store)
    else:
        for _ in range(WORKERS):
            table.open()
        fill(lambda holder, ids: table.store(holder, 0, ids))
    return (rss() - start) / BLOCKS


def redis_rows() -> list[Row]:
    """Time the same lookups in a Redis on this machine, which has a set or a mask per block."""
    with _redis() as client:
        ids = ids_of(REDIS_BLOCKS, 3)
        start = client.info("memory")["used_memory"]
        write_s = _pipelined(client, lambda pipe, one: pipe.sadd(b"s" + _key(one), one % 32), ids)
        after_sets = client.info("memory")["used_memory"]
        _pipelined(client, lambda pipe, one: pipe.set(b"m" + _key(one), b"\1\0\0\0"), ids)
        after_masks = client.info("memory")["used_memory"]
        prompt = ids[:PROMPT]
        keys = [b"m" + _key(one) for one in prompt]

        def members() -> None:
            pipe = client.pipeline(transaction=False)
            for one in prompt:
                pipe.smembers(b"s" + _key(one))
            pipe.execute()

        table = BlockTable(BLOCKS)
        table.open()
        table.store(0, 0, prompt)
        own, one, sets, masks = fastest(
            lambda: table.match(prompt),
            lambda: client.get(keys[0]),
            members,
            lambda: client.mget(keys),
            rounds=501,
            clock=time.perf_counter,
        )
    what = f"match of {PROMPT} blocks"
    return [
        Row(what, own * 1e6, "µs", "Redis, 256 sets in a pipeline", sets * 1e6, sets / own),
        Row(what, own * 1e6, "µs", "Redis, MGET of 256 masks", masks * 1e6, masks / own),
        Row("round trip to Redis", one * 1e6, "µs"),
        Row("memory of a block in Redis, as a set", (after_sets - start) / REDIS_BLOCKS, "B"),
        Row("memory of a block in Redis, mask", (after_masks - after_sets) / REDIS_BLOCKS, "B"),
        Row("blocks stored in Redis, pipelines of 1000", REDIS_BLOCKS / write_s, "/s"),
    ]


def _key(one: int) -> bytes:
    return one.to_bytes(8, "big")


def _pipelined(client: Any, add: Callable[[Any, int], object], ids: list[int]) -> float:
    start = time.perf_counter()
    for index in range(0, len(ids), 1000):
        pipe = client.pipeline(transaction=False)
        for one in ids[index : index + 1000]:
            add(pipe, one)
        pipe.execute()
    return time.perf_counter() - start


@contextmanager
def _redis() -> Iterator[Any]:
    """Run a Redis server on a socket file."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis.sock"
        command = [
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            path,
            "--save",
            "",
            "--dir",
            folder,
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            client = Redis(unix_socket_path=path)
            while True:
                try:
                    client.ping()
                    break
                except NotListening:
                    time.sleep(0.01)
            yield client
            client.close()
        finally:
            process.kill()
            process.wait()


def rows() -> list[Row]:
    """Return all rows."""
    found = [*match_rows(), *event_rows(), *full_table_rows(), *socket_rows(), *start_rows()]
    found += memory_rows()
    return found + (redis_rows() if shutil.which("redis-server") else [])


if __name__ == "__main__":
    report("kvindex", rows())
