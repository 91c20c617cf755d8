"""The scenarios in which routers are compared: a trace, a fleet, and an event such as a crash."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean, quantiles
from typing import NamedTuple

from bench.fleet import workers
from bench.fleet.replay import Answer, replay
from bench.fleet.simulation import DEFAULT_SPEED
from bench.fleet.traces import TRACES, LiveTrace
from bench.fleet.workers import FLEET_TOKENS, MODEL
from bench.peers.routers import (
    CONTROLS,
    LEAST_LOAD,
    ONE_PICKER,
    ROUTERS,
    TWO_PICKERS,
    WITHOUT_REPLAY,
    Command,
    Router,
    balancer,
    running,
)
from bench.peers.workers import Plans, SimulatedWorker, Target, plan_all, simulated
from bench.trace.records import Request
from bench.trace.workload import renamed
from tests.live.engines import Engine

# The size of each worker's cache: the traces are made for fleets of two.
CACHE_TOKENS = FLEET_TOKENS // 2

_WARM_UP = 8


class Run(NamedTuple):
    """The figures of one router in one scenario: a line of bench/results/peers.csv."""

    scenario: str
    trace: str
    workers: int
    router: str
    seed: int
    requests: int
    repeated: int
    """How many requests failed and were sent again."""
    cached_percent: float
    first_token_mean_ms: float
    first_token_p50_ms: float
    first_token_p95_ms: float
    first_token_p99_ms: float
    busiest_computed_tokens: int
    router_cpu_ms: float
    """CPU time per request, summed over all replicas."""
    router_mib: float
    """Memory of all replicas at the end."""


class Setting:
    """The running fleet, which an event may change while a trace is replayed."""

    def __init__(
        self, workers: Sequence[SimulatedWorker], start_router: Callable[[], Router]
    ) -> None:
        self.workers = workers
        self.start_router = start_router
        self.routers: list[Router] = []
        self.url = ""


def _restart_router(setting: Setting, seconds: float) -> None:
    """Replace the router with a new one, which gets requests once it answers."""
    time.sleep(seconds / 2)
    setting.routers.append(setting.start_router())
    setting.url = setting.routers[-1].url


def _kill_worker(setting: Setting, seconds: float) -> None:
    """Kill a worker. It comes back with an empty cache."""
    time.sleep(0.4 * seconds)
    setting.workers[0].kill()
    time.sleep(0.1 * seconds)
    setting.workers[0].start()


class Scenario(NamedTuple):
    """A fleet, its routers, and a trace."""

    name: str
    trace: LiveTrace
    workers: int = 8
    replicas: int = 1
    slowest: float = 1.0
    """The speed of one worker, relative to the others."""
    event: Callable[[Setting, float], None] | None = None
    controls: tuple[str, ...] = ()
    """Other ways to run mmhash that are compared in this scenario."""


_AGENTS = TRACES["agents"].grown(4)

SCENARIOS = [
    *(Scenario("one router", TRACES[name].grown(4)) for name in (
        "agents", "visionarena", "documents", "same question"
    )),
    Scenario("one router", TRACES["servegen"].grown(4), controls=(LEAST_LOAD,)),
    Scenario("two routers", _AGENTS, replicas=2),
    Scenario("four routers", _AGENTS, replicas=4),
    Scenario("the router restarts", _AGENTS, event=_restart_router, controls=(WITHOUT_REPLAY,)),
    Scenario("a worker dies", _AGENTS, event=_kill_worker),
    Scenario("a burst", TRACES["agents"].grown(4, rate=3.0)),
    Scenario("a slow worker", _AGENTS, slowest=1 / 3),
    Scenario("one router", TRACES["agents"], workers=2),
    Scenario("one router", TRACES["agents"].grown(8, rate=0.5), workers=32),
    *(Scenario(
        "gateway and pickers", TRACES[name], workers=2, controls=(ONE_PICKER, TWO_PICKERS)
    ) for name in ("agents", "visionarena", "servegen")),
]  # fmt: skip


@lru_cache(1)
def _prepared(trace: LiveTrace, seed: int) -> tuple[list[Request], list[Request], Plans]:
    """Return a trace, warm-up requests of other content, and the plans of all requests."""
    requests = trace.with_seed(seed).requests()
    warm_up = [
        replace(one, session=f"warm-up-{one.session}")
        for one in renamed(requests[:_WARM_UP], "warm-up-")
    ]
    return requests, warm_up, plan_all([*requests, *warm_up])


def run(scenario: Scenario, name: str, seed: int) -> Run:
    """Replay a scenario's trace through one kind of router, with new workers."""
    trace, warm_up, plans = _prepared(scenario.trace, seed)
    fast = DEFAULT_SPEED.tokens_per_s
    slow = DEFAULT_SPEED._replace(tokens_per_s=fast * scenario.slowest)
    speeds = [slow] + [DEFAULT_SPEED] * (scenario.workers - 1)
    with simulated(plans, speeds, CACHE_TOKENS) as fleet:
        targets = [one.target for one in fleet]
        with started((ROUTERS | CONTROLS)[name], targets, scenario.replicas) as setting:
            setting.workers = fleet
            replay(setting.url, warm_up, repeats=True)
            figures = measure(setting, trace, scenario.event)
            computed = [one.counters().computed_tokens for one in fleet]
    return figures._replace(
        scenario=scenario.name,
        trace=scenario.trace.name,
        workers=scenario.workers,
        router=name,
        seed=seed,
        busiest_computed_tokens=max(computed),
    )


def run_live(engines: Sequence[Engine], trace: LiveTrace, name: str, seed: int) -> Run:
    """Replay a trace through one kind of router in front of real engines, with empty caches."""
    # Each run has its own content, so no engine has any of it cached.
    requests = renamed(trace.with_seed(seed).requests(), f"{name}-{seed}-{trace.name}-")
    folder = str(engines[0].environment.model(MODEL))
    targets = [
        Target(one.url, one.events.endpoint, one.replay, one.spelling, one.block_size, folder)
        for one in engines
    ]
    workers.flush(engines)
    with started((ROUTERS | CONTROLS)[name], targets, 1) as setting:
        replay(setting.url, renamed(requests[:_WARM_UP], "warm-up-"), repeats=True)
        before = [workers.counters(one).computed_tokens for one in engines]
        figures = measure(setting, requests, None)
        after = [workers.counters(one).computed_tokens for one in engines]
    return figures._replace(
        scenario=f"real {engines[0].spelling}",
        trace=trace.name,
        workers=len(engines),
        router=name,
        seed=seed,
        busiest_computed_tokens=max(
            late - early for late, early in zip(after, before, strict=True)
        ),
    )


@contextmanager
def started(command: Command, targets: Sequence[Target], replicas: int) -> Iterator[Setting]:
    """Start the routers in front of workers. If there are several, start Envoy in front of them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mmhash-peers-")))

        def start_router() -> Router:
            return stack.enter_context(running(command, targets, folder))

        setting = Setting([], start_router)
        setting.routers = [start_router() for _ in range(replicas)]
        front = setting.routers[0]
        if replicas > 1:
            front = stack.enter_context(balancer(setting.routers, folder))
        setting.url = front.url
        yield setting


def measure(
    setting: Setting, trace: list[Request], event: Callable[[Setting, float], None] | None
) -> Run:
    """Replay a trace. The caller fills in the names of the scenario and of the router."""
    cpu_s = sum(one.cpu_s() for one in setting.routers)
    thread = threading.Thread(target=event, args=(setting, trace[-1].at)) if event else None
    if thread:
        thread.start()
    answers = replay(lambda: setting.url, trace, repeats=True)
    if thread:
        thread.join()
    cpu_s = sum(one.cpu_s() for one in setting.routers) - cpu_s
    times = [1e3 * one.first_token_s for one in answers]
    cuts = quantiles(times, n=100, method="inclusive")
    return Run(
        scenario="",
        trace="",
        workers=0,
        router="",
        seed=0,
        requests=len(answers),
        repeated=sum(one.failures > 0 for one in answers),
        cached_percent=round(100 * _cached(answers), 1),
        first_token_mean_ms=round(fmean(times), 1),
        first_token_p50_ms=round(cuts[49], 1),
        first_token_p95_ms=round(cuts[94], 1),
        first_token_p99_ms=round(cuts[98], 1),
        busiest_computed_tokens=0,
        router_cpu_ms=round(1e3 * cpu_s / len(answers), 2),
        router_mib=round(sum(one.memory_mib() for one in setting.routers), 1),
    )


def _cached(answers: Sequence[Answer]) -> float:
    return sum(one.cached_tokens for one in answers) / sum(one.prompt_tokens for one in answers)
