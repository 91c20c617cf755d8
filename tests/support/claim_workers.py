"""Replicas for tests of claims: `python -m tests.support.claim_workers URL LOG SECONDS NUMBER TIMEOUT`.

It forks so many processes, which all want one result once a line is read from stdin. Each writes
its computation to a log, and its result and the seconds that it took to stdout. A fork costs
nothing; the imports of 16 processes take a minute on a busy machine.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from mmhash_service.claims import flight
from mmhash_service.claims import redis as redis_claims
from mmhash_service.claims.stores import create_claims
from mmhash_service.memo.breaker import Breaker
from mmhash_service.memo.stores import create_store

# Longer than the service's 3 s: a process on a busy machine must not look like one that was killed.
LEASE_S = 8


async def compute_once(url: str, log: Path, seconds: float, gate: int) -> None:
    store = create_store(url, 0)
    breaker = Breaker(store)
    await breaker.open()
    flights = flight.Flights(create_claims("redis", breaker, store), max_wait_s=60)

    async def compute() -> bytes:
        note("begin")
        await asyncio.sleep(seconds)
        note("end")
        return b"result"

    def note(event: str) -> None:
        with log.open("a") as file:
            file.write(f"{event} {os.getpid()}\n")

    say("ready")
    await asyncio.to_thread(os.read, gate, 1)
    start = time.perf_counter()
    result = await flights.run(b"name", compute)
    say(f"{result.decode()} {time.perf_counter() - start}")
    await flights.close()
    await breaker.close()


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main(url: str, log: str, seconds: str, number: str, timeout_s: str) -> None:
    redis_claims.TIMEOUT_S = float(timeout_s)
    flight.LEASE_MS, flight._RENEW_S = 1000 * LEASE_S, LEASE_S / 3
    gate, opener = os.pipe()
    for _ in range(int(number)):
        pid = os.fork()
        if pid == 0:
            os.close(opener)
            asyncio.run(compute_once(url, Path(log), float(seconds), gate))
            os._exit(0)
    sys.stdin.readline()
    os.close(opener)
    for _ in range(int(number)):
        os.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
