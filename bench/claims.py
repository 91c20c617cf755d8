"""Latency that a lease adds to a miss, and computations when many processes miss at once.

Run `python -m bench.claims`; it starts a Redis server.
"""

import asyncio
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.support.measure import Row, report
from mmhash_service.claims.flight import Flights
from mmhash_service.claims.stores import create_claims
from mmhash_service.memo.breaker import Breaker
from mmhash_service.memo.stores import create_store
from tests.support.redis import RedisServer

ROUNDS = 2000
DECODE_S = 0.005
PROCESSES = 16
IMAGES = 30


async def misses(url: str) -> list[Row]:
    """Measure without and with leases in the same run, alternating."""
    store = create_store(url, 0)
    breaker = Breaker(store)
    await breaker.open()
    flights = Flights(create_claims("redis", breaker, store), max_wait_s=10)

    async def nothing() -> bytes:
        return b"result"

    async def plain(name: bytes) -> bytes:
        await breaker.get(name, bytes)
        return await nothing()

    async def leased(name: bytes) -> bytes:
        await breaker.get(name, bytes)
        return await flights.run(name, nothing)

    times: dict[str, list[float]] = {"lookup only": [], "lookup and lease": []}
    for _ in range(ROUNDS):
        times["lookup only"].append(await seconds(plain))
        times["lookup and lease"].append(await seconds(leased))
    await flights.close()
    await breaker.close()
    plain_cuts, leased_cuts = (statistics.quantiles(each, n=100) for each in times.values())
    return [
        Row(f"a miss with a lease, {name}", *compared(leased_cuts[at], plain_cuts[at]))
        for name, at in (("p50", 49), ("p99", 98))
    ]


def compared(leased_s: float, plain_s: float) -> tuple[float, str, str, float, float]:
    """Return the columns of a time; the ratio is that of the lease over the lookup."""
    return leased_s * 1e3, "ms", "lookup only", plain_s * 1e3, leased_s / plain_s


async def seconds(call: Callable[[bytes], Awaitable[bytes]]) -> float:
    """Return the time of one call for a new name."""
    name = secrets.token_bytes(32)
    start = time.perf_counter()
    await call(name)
    return time.perf_counter() - start


async def replica(url: str, log: Path, start_at: float) -> None:
    """Want each of the images at the same moments as the other replicas."""
    store = create_store(url, 0)
    breaker = Breaker(store)
    await breaker.open()
    flights = Flights(create_claims("redis", breaker, store), max_wait_s=10)

    async def decode() -> bytes:
        write("decode\n")
        await asyncio.sleep(DECODE_S)
        return b"result"

    def write(line: str) -> None:
        with log.open("a") as file:
            file.write(line)

    for number in range(IMAGES):
        await asyncio.sleep(max(0.0, start_at + 0.2 * number - time.time()))
        start = time.perf_counter()
        await flights.run(b"image %d" % number, decode)
        write(f"{time.perf_counter() - start}\n")
    await flights.close()
    await breaker.close()


def crowd(url: str, folder: Path) -> list[Row]:
    """Let many processes miss the same images."""
    log = folder / "log"
    log.touch()
    start_at = time.time() + 5
    for _ in range(PROCESSES):
        if os.fork() == 0:
            asyncio.run(replica(url, log, start_at))
            os._exit(0)
    for _ in range(PROCESSES):
        os.wait()
    lines = log.read_text().splitlines()
    values = [float(line) for line in lines if line != "decode"]
    cuts = statistics.quantiles(values, n=100)
    decodes = lines.count("decode")
    each = f"{PROCESSES} processes, a new image of {1000 * DECODE_S:.0f} ms"
    return [
        Row(
            f"decodes of {IMAGES} images by {PROCESSES} processes", decodes, "", target=f"{IMAGES}"
        ),
        Row(f"{each}, p50", cuts[49] * 1e3, "ms"),
        Row(f"{each}, p99", cuts[98] * 1e3, "ms"),
    ]


def rows() -> list[Row]:
    """Measure every figure that the docs quote of claims."""
    with tempfile.TemporaryDirectory() as temporary:
        server = RedisServer(Path(temporary))
        try:
            return [*crowd(server.url, Path(temporary)), *asyncio.run(misses(server.url))]
        finally:
            server.kill()


if __name__ == "__main__":
    report("claims", rows())
