"""Replay each trace with every policy, on the same workers."""

import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import product
from typing import NamedTuple

import httpx

from bench.fleet import workers
from bench.fleet.replay import Answer, FailedError, replay
from bench.fleet.traces import LiveTrace, most_cached, plan, working_set
from bench.trace.records import Request
from bench.trace.workload import renamed
from tests.live.engines import Engine


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
    cache_tokens: int
    """The cache of each worker."""
    working_set: int
    """The number of tokens in the trace's different blocks."""
    most_percent: float
    """What one worker with an endless cache would have cached: no placement caches more."""
    seed: int = 0


_WARM_UP = 20

Gateway = Callable[[Sequence[Engine], str], AbstractContextManager[str]]


def compare(  # noqa: PLR0917
    fleet: Sequence[Engine],
    traces: Sequence[LiveTrace],
    policies: Sequence[str],
    gateway: Gateway,
    rounds: int = 1,
    seeds: int = 1,
) -> Iterator[Run]:
    """Yield the figures of each trace and seed with each policy. The policies take turns."""
    # An engine answers its first requests slowly.
    for worker in fleet:
        replay(worker.url, renamed(traces[0].requests()[:_WARM_UP], "warm-up-"))
    for trace, seed, number in product(traces, range(seeds), range(rounds)):
        requests = trace.with_seed(seed).requests()
        prompts = plan(requests)
        most = 100 * most_cached(prompts) / sum(one.tokens for one in prompts)
        for policy in policies:
            # Each run has its own content, so no engine has any of it cached.
            own = renamed(requests, f"{policy}-{seed}-{number}-{trace.name}-")
            workers.flush(fleet)
            with gateway(fleet, policy) as url:
                run = _measure(fleet, url, own)
            yield run._replace(
                trace=trace.name,
                policy=policy,
                round=number,
                seed=seed,
                working_set=working_set(prompts),
                most_percent=round(most, 1),
            )


def _measure(fleet: Sequence[Engine], url: str, requests: list[Request]) -> Run:
    """Replay a trace. The caller fills in the names of the trace and of the policy."""
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
    # The engines' counters must agree with the usage in their responses, unless the gateway retried
    # a request: then two workers computed parts of it.
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
        cache_tokens=workers.cache_tokens(len(fleet)),
        working_set=0,
        most_percent=0.0,
    )


def _retries(url: str) -> bool:
    text = httpx.get(f"{url}/metrics", timeout=60, trust_env=False).text
    return re.search(r"^mmhash_gateway_retries_total\{.*\} [1-9]", text, re.MULTILINE) is not None


def _first_token_ms(answers: list[Answer], percentile: int) -> float:
    cuts = statistics.quantiles((one.first_token_s for one in answers), n=100, method="inclusive")
    return round(1e3 * cuts[percentile - 1], 1)
