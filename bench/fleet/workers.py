"""Runs engines on the CPU as workers of a fleet, and reads their own counters."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from bench.support.servers import processes_of
from tests.live.engines import Engine, running
from tests.live.environments import Environment

MODEL = "qwen2_vl"
# The caches of the whole fleet hold two thirds of a trace's working set, so evictions matter.
FLEET_TOKENS = 16_384
# A worker must hold more than the longest prompt.
_LEAST_TOKENS = 5_120


def cache_tokens(count: int) -> int:
    """Return the size of each worker's cache, in tokens, in a fleet of this many workers."""
    return max(FLEET_TOKENS // count, _LEAST_TOKENS)


def _options(engine: str, tokens: int) -> tuple[str, ...]:
    if engine == "vllm":
        return (
            "--max-model-len", "4096", "--num-gpu-blocks-override", str(tokens // 32),
            "--limit-mm-per-prompt", '{"image": 40}',
        )  # fmt: skip
    return "--context-length", "4096", "--max-total-tokens", str(tokens), "--enable-metrics"


_PROMPT_TOKENS = re.compile(
    r"^(?:vllm|sglang):prompt_tokens_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE
)
_CACHED_TOKENS = re.compile(
    r"^(?:vllm:prompt_tokens_cached|sglang:cached_tokens)_total(?:\{[^}]*\})? (\S+)$",
    re.MULTILINE,
)


class Counters(NamedTuple):
    """How many prompt tokens a worker has received, and how many of them it had cached."""

    prompt_tokens: int
    cached_tokens: int

    @property
    def computed_tokens(self) -> int:
        """How many prompt tokens the worker computed."""
        return self.prompt_tokens - self.cached_tokens


@contextmanager
def started(engine: str, release: str, count: int, logs: Path) -> Iterator[list[Engine]]:
    """Start workers of one release, all at once, because each start is slow."""
    environment = Environment(engine, release)
    environment.build()
    options = _options(engine, cache_tokens(count))
    with ExitStack() as stack, ThreadPoolExecutor(count) as pool:

        def start(number: int) -> Engine:
            log = logs / f"{environment.spelling}-{number}.log"
            worker = stack.enter_context(
                running(environment, MODEL, *options, log=log, variables=_VARIABLES)
            )
            worker.events.close()  # the gateway reads the events instead
            return worker

        yield list(pool.map(start, range(count)))


# This enables /reset_prefix_cache.
_VARIABLES = {"VLLM_SERVER_DEV_MODE": "1"}


def flush(workers: Sequence[Engine]) -> None:
    """Empty the prefix caches."""
    for worker in workers:
        path = {"vllm": "/reset_prefix_cache", "sglang": "/flush_cache"}[worker.name]
        worker.client.post(path).raise_for_status()


def counters(worker: Engine) -> Counters:
    """Return a worker's counters, from its /metrics."""
    text = httpx.get(f"{worker.url}/metrics", timeout=60, trust_env=False).text
    return Counters(*(_sum(pattern, text) for pattern in (_PROMPT_TOKENS, _CACHED_TOKENS)))


def _sum(pattern: re.Pattern[str], text: str) -> int:
    return int(sum(map(float, pattern.findall(text))))


def cpu_seconds(workers: Sequence[Engine]) -> float:
    """Return the CPU time of the workers' processes up to now."""
    return sum(cpu_s for worker in workers for _, cpu_s in processes_of(worker.pid))
