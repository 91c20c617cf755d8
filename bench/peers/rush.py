"""`python -m bench.peers.rush`: sends hundreds of requests a second to replicas of the gateway.

Several processes send the trace `agents` to an Envoy in front of the replicas. The simulated
workers are fast, and their caches are large enough. So the routers are the bottleneck.
"""

import argparse
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from statistics import median

import httpx

from bench.fleet.replay import Answer, replay
from bench.fleet.simulation import Speed
from bench.fleet.traces import TRACES
from bench.peers.routers import Router, mmhash
from bench.peers.scenarios import started
from bench.peers.workers import SimulatedWorker, plan_all, simulated
from bench.trace.records import Request

SPEED = Speed(tokens_per_s=20_000, reply_token_s=0.005)
CACHE_TOKENS = 100_000

_INTERVAL_S = 0.5

_FORK = get_context("fork")  # the processes share the parts
_parts: list[list[Request]] = []


def cut(trace: Sequence[Request], count: int) -> list[list[Request]]:
    """Divide a trace into parts that share no session."""
    sessions = {name: number for number, name in enumerate(dict.fromkeys(r.session for r in trace))}
    return [[r for r in trace if sessions[r.session] % count == part] for part in range(count)]


def _send(part: int, url: str) -> list[Answer]:
    return replay(url, _parts[part], repeats=True)


def read(router: Router, name: str) -> dict[str, float]:
    """Return the values of a router's metric, by label."""
    text = httpx.get(f"{router.url}/metrics", timeout=60, trust_env=False).text
    found = re.findall(rf'^{name}(?:{{[^}}]*"([^"]*)"}})? (\S+)$', text, re.MULTILINE)
    return {label: float(value) for label, value in found}


class Watch(threading.Thread):
    """Reads the routers' metrics until `stop`: requests a second, and the lag of events."""

    def __init__(self, routers: Sequence[Router]) -> None:
        super().__init__()
        self._routers = routers
        self._stopped = threading.Event()
        self.rates: list[float] = []
        self.lags: list[float] = []

    def run(self) -> None:
        """Read every half second."""
        before, then = 0.0, time.perf_counter()
        while not self._stopped.wait(_INTERVAL_S):
            counts = [read(one, "mmhash_gateway_decision_seconds_count") for one in self._routers]
            count, now = sum(one.get("", 0) for one in counts), time.perf_counter()
            self.rates.append((count - before) / (now - then))
            before, then = count, now
            for one in self._routers:
                self.lags += read(one, "mmhash_gateway_worker_events_lag_seconds").values()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self.join()


def counted(routers: Sequence[Router], workers: Sequence[SimulatedWorker]) -> Iterator[str]:
    """Yield lines that compare what the routers count with what the workers hold."""
    buckets: Counter[str] = Counter()
    for router in routers:
        buckets.update(read(router, "mmhash_gateway_decision_seconds_bucket"))
    decisions = buckets.pop("+Inf")
    shares = (
        f"{1e3 * float(bound):g} ms {100 * count / decisions:.2f} %"
        for bound, count in buckets.items()
    )
    yield f"{decisions:.0f} decisions within " + ", ".join(shares)
    held = [one.blocks() for one in workers]
    indexed = [read(router, "mmhash_gateway_worker_blocks") for router in routers]
    wrong = sum(
        index.get(one.target.url) != blocks
        for one, blocks in zip(workers, held, strict=True)
        for index in indexed
    )
    yield f"{sum(held)} blocks held; {wrong} counts of {len(routers)} indexes differ"
    yield "memory of the replicas: " + ", ".join(f"{one.memory_mib():.0f} MiB" for one in routers)


def main() -> None:
    """Replay the trace once."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.rush", description=__doc__)
    parser.add_argument("--sessions", type=float, default=50, help="times those of the trace")
    parser.add_argument("--rate", type=float, default=5, help="multiplies the sessions a second")
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--processes", type=int, default=4, help="of each replica")
    parser.add_argument("--clients", type=int, default=10)
    given = parser.parse_args()
    trace = TRACES["agents"].grown(given.sessions, rate=given.rate).requests()
    _parts[:] = cut(trace, given.clients)
    plans = plan_all([])  # workers plan requests as they come: planning all now would take a minute
    command = mmhash("--processes", str(given.processes))
    with (
        simulated(plans, [SPEED] * given.workers, CACHE_TOKENS) as workers,
        started(command, [one.target for one in workers], given.replicas) as setting,
        _FORK.Pool(given.clients) as pool,
    ):
        watch = Watch(setting.routers)
        cpu_s = sum(one.cpu_s() for one in setting.routers)
        watch.start()
        sent = pool.starmap(_send, [(part, setting.url) for part in range(given.clients)])
        watch.stop()
        cpu_s = sum(one.cpu_s() for one in setting.routers) - cpu_s
        answers = [one for part in sent for one in part]
        busy = sorted(watch.rates)[len(watch.rates) // 2 :]
        print(
            f"{len(answers)} requests, {sum(one.failures for one in answers)} sent again;"
            f" {median(busy):.0f} a second at the median of the busier half, {busy[-1]:.0f} at most"
        )
        print(f"CPU of a request: {1e3 * cpu_s / len(answers):.2f} ms")
        print(
            f"lag of events: {1e3 * median(watch.lags):.1f} ms, {1e3 * max(watch.lags):.1f} at most"
        )
        print(*counted(setting.routers, workers), sep="\n")


if __name__ == "__main__":
    main()
