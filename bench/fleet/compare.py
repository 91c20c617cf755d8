"""One trace after another, each with every policy, on the same workers."""

import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple

import httpx

from bench.fleet import workers
from bench.fleet.replay import Answer, FailedError, replay
from bench.trace.records import Request
from bench.trace.workload import (
    AGENTS,
    REFERENCES,
    SERVEGEN,
    VISIONARENA,
    Workload,
    generate,
    renamed,
    scaled,
)
from tests.live.engines import Engine

# Tiny models on two cores: the tokens are scaled, and the arrivals fit what the cores can do.
SCALE = 0.2
REPLY_SCALE = 0.04
SCREENSHOT_SCALE = 0.05  # 33 of them must fit into 4096 tokens
CONTEXT = 3800


class LiveTrace(NamedTuple):
    """A workload of the size that engines on a CPU can replay."""

    workload: Workload
    scale: float

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.workload.name

    def requests(self) -> list[Request]:
        """Return the trace."""
        context = round(CONTEXT / self.scale)
        return scaled(generate(replace(self.workload, context=context)), self.scale, REPLY_SCALE)


_SERVEGEN = replace(SERVEGEN, sessions=60, tenants=4, rate=3.0)
TRACES = {
    one.name: one
    for one in (
        LiveTrace(replace(REFERENCES, rate=8.0), SCALE),
        LiveTrace(replace(VISIONARENA, sessions=42, rate=2.5, pause_s=2.5), SCALE),
        LiveTrace(_SERVEGEN, SCALE),
        LiveTrace(replace(AGENTS, sessions=6, clients=6, rate=0.7, pause_s=1.2), SCREENSHOT_SCALE),
        LiveTrace(_SERVEGEN.without_reuse(), SCALE),
    )
}


class Run(NamedTuple):
    """The figures of one trace with one policy: a line of bench/results/fleet.csv."""

    engine: str
    workers: int
    trace: str
    policy: str
    round: int
    requests: int
    prompt_tokens: int
    cached_tokens: int
    cached_percent: float
    busiest_computed_tokens: int
    first_token_p50_ms: float
    first_token_p99_ms: float
    request_mean_ms: float
    seconds: float
    engine_cpu_s: float


Gateway = Callable[[Sequence[Engine], str], AbstractContextManager[str]]


def compare(
    fleet: Sequence[Engine],
    traces: Sequence[LiveTrace],
    policies: Sequence[str],
    gateway: Gateway,
    rounds: int = 1,
) -> Iterator[Run]:
    """Yield the figures of each trace with each policy; in each round the policies take turns."""
    for trace in traces:
        requests = trace.requests()
        for number in range(rounds):
            for policy in policies:
                # Other content for each run: no cache of an engine holds any of it.
                own = renamed(requests, f"{policy}-{number}-{trace.name}-")
                workers.flush(fleet)
                with gateway(fleet, policy) as url:
                    run = _measure(fleet, url, own)
                yield run._replace(trace=trace.name, policy=policy, round=number)


def _measure(fleet: Sequence[Engine], url: str, requests: list[Request]) -> Run:
    """Replay a trace; the caller fills in its name, the policy and the round."""
    before, cpu = [workers.counters(one) for one in fleet], workers.cpu_seconds(fleet)
    start = time.perf_counter()
    answers = replay(url, requests)
    seconds, cpu = time.perf_counter() - start, workers.cpu_seconds(fleet) - cpu
    after = [workers.counters(one) for one in fleet]
    computed = [
        late.computed_tokens - early.computed_tokens
        for late, early in zip(after, before, strict=True)
    ]
    prompt = sum(one.prompt_tokens for one in answers)
    cached = sum(one.cached_tokens for one in answers)
    # The engines' counters and the usage of their answers are two witnesses. A request that the
    # gateway sent again was computed twice, by part.
    if sum(computed) != prompt - cached and not _retries(url):
        raise FailedError(f"computed by the counters: {computed}, by usage: {prompt - cached}")
    return Run(
        engine=fleet[0].spelling,
        workers=len(fleet),
        trace="",
        policy="",
        round=0,
        requests=len(answers),
        prompt_tokens=prompt,
        cached_tokens=cached,
        cached_percent=round(100 * cached / prompt, 1),
        busiest_computed_tokens=max(computed),
        first_token_p50_ms=_first_token_ms(answers, 50),
        first_token_p99_ms=_first_token_ms(answers, 99),
        request_mean_ms=round(1e3 * statistics.fmean(one.seconds for one in answers), 1),
        seconds=round(seconds, 2),
        engine_cpu_s=round(cpu, 2),
    )


def _retries(url: str) -> bool:
    text = httpx.get(f"{url}/metrics", timeout=60, trust_env=False).text
    return re.search(r"^mmhash_gateway_retries_total\{.*\} [1-9]", text, re.MULTILINE) is not None


def _first_token_ms(answers: list[Answer], percentile: int) -> float:
    cuts = statistics.quantiles((one.first_token_s for one in answers), n=100, method="inclusive")
    return round(1e3 * cuts[percentile - 1], 1)
