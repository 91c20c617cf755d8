"""Latency that a lease adds to a miss, and computations when many processes miss at once.

Run `python -m bench.claims`; it starts a Redis server and prints a table.
"""

import asyncio
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from mmhash_service.claims.flight import Flights
from mmhash_service.claims.stores import create_claims
from mmhash_service.memo.breaker import Breaker
from mmhash_service.memo.stores import create_store
from tests.support.redis import RedisServer

ROUNDS = 2000
DECODE_S = 0.005
PROCESSES = 16
IMAGES = 30


async def main(url: str) -> None:
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
    print("| miss | p50 | p99 |\n| --- | --- | --- |")
    for name, values in times.items():
        cuts = statistics.quantiles(values, n=100)
        print(f"| {name} | {1000 * cuts[49]:.2f} ms | {1000 * cuts[98]:.2f} ms |")


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


def crowd(url: str, folder: Path) -> None:
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
    print(
        f"{PROCESSES} processes, {IMAGES} new images of {1000 * DECODE_S:.0f} ms: "
        f"{lines.count('decode')} decodes; p50 {1000 * cuts[49]:.1f} ms, "
        f"p99 {1000 * cuts[98]:.1f} ms"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        server = RedisServer(Path(temporary))
        try:
            crowd(server.url, Path(temporary))
            asyncio.run(main(server.url))
        finally:
            server.kill()
