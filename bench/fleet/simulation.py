"""Replays the traces in simulated time, to show what placing requests can achieve.

    python -m bench.fleet.simulation [--workers 2] [--seeds 8] [--first-seed 0] [--trace agents]
        [--unnamed] [--unseen] [--tokens-per-s 2500] [--reply-token-s 0.02]

The gateway's decisions, index and expected blocks are real. The workers are simulated: they compute
one prompt after another, and evict blocks like vLLM (the least recently used first, and a prompt's
last block first). The figures compare policies. They do not predict an engine's figures. `--unseen`
replays traces that had no part in choosing the policy's constants, with and without the policy's
term for evictions.
"""

import argparse
import heapq
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice, product
from typing import NamedTuple

from bench.fleet.gateway import POLICIES
from bench.fleet.traces import (
    BLOCK_SIZE,
    ENGINE,
    RELEASE,
    SYSTEM,
    TRACES,
    LiveTrace,
    Prompt,
    most_cached,
    plan,
)
from bench.fleet.unseen import UNSEEN, MixedTrace
from bench.fleet.workers import cache_tokens
from mmhash.kvindex import Index
from mmhash.kvindex import Worker as EventSource
from mmhash.kvindex.events import Batch, BlocksRemoved, BlocksStored
from mmhash_service.gateway.expected import UnnamedBlocks
from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.policy import Conversations
from mmhash_service.gateway.router import PlanSize, Prepared, rank_workers
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker import Worker
from mmhash_service.gateway.worker_spec import EngineSpec, WorkerSpec

WITHOUT_EVICTIONS = "longest-prefix without evictions"

EVENTS_S = 0.05  # from computing a prompt until the index has its events
GRACE_S = 1.0  # the same as the gateway's

ENGINE_SPEC = EngineSpec(f"{ENGINE}@{RELEASE}", BLOCK_SIZE)


def system_prompt_only() -> LiveTrace:
    """Return the trace without reuse, but with one system prompt for all requests."""
    trace = TRACES["servegen, no reuse"]
    workload = replace(
        trace.workload,
        name="system prompt only",
        sessions=60,
        system=SYSTEM,
        clients=1,
        top_clients=1,
        top_share=1.0,
        tenants=1,
    )
    return trace._replace(workload=workload)


class Speed(NamedTuple):
    """The speed of a simulated engine."""

    tokens_per_s: float = 2500.0
    """How many prompt tokens the engine computes in a second."""
    reply_token_s: float = 0.02
    """How many seconds each token of a reply takes."""


DEFAULT_SPEED = Speed()


class Outcome(NamedTuple):
    """The figures of a trace."""

    cached_percent: float
    first_token_mean_ms: float
    first_token_p99_ms: float


class LruCache:
    """The blocks of one worker. Blocks of running requests are not evicted."""

    def __init__(self, blocks: int) -> None:
        self._size = blocks
        self._free: dict[int, None] = {}  # the least recently used first
        self._users: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._free) + len(self._users)

    def start(self, prompt: Sequence[int], reply_blocks: int) -> tuple[int, list[int], list[int]]:
        """Begin a request. Return its hits, and the blocks that are stored and evicted for it."""
        hits = 0
        while hits < len(prompt) and (prompt[hits] in self._free or prompt[hits] in self._users):
            hits += 1
        for one in prompt:
            self._free.pop(one, None)
            self._users[one] = self._users.get(one, 0) + 1
        excess = len(self) + reply_blocks - self._size
        evicted = list(islice(self._free, max(0, excess)))
        for one in evicted:
            del self._free[one]
        return hits, list(prompt[hits:]), evicted

    def end(self, prompt: Sequence[int]) -> None:
        """End a request. Its blocks may now be evicted, the last block first."""
        for one in reversed(prompt):
            self._users[one] -= 1
            if not self._users[one]:
                del self._users[one]
                self._free[one] = None


class Clock:
    """Simulated time: makes calls in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Make a call at a time, or now if the time has passed."""
        heapq.heappush(self._calls, (max(time, self.now), next(self._numbers), call))

    def run(self) -> None:
        """Run until no calls are left."""
        while self._calls:
            self.now, _, call = heapq.heappop(self._calls)
            call()


class SimulatedWorker:
    """A worker with a cache and a queue. The index gets its events."""

    def __init__(
        self, worker: Worker, fleet: Fleet, clock: Clock, blocks: int, speed: Speed
    ) -> None:
        self._worker, self._fleet, self._clock, self._speed = worker, fleet, clock, speed
        (source,) = fleet.index._workers[worker.url]
        self._rank = source.rank
        self._cache = LruCache(blocks)
        self._free_at = 0.0
        self.computed = 0

    def take(
        self, prompt: Prompt, tokens: int, unheld: Sequence[int], done: Callable[[float], None]
    ) -> None:
        """Queue a prompt. The gateway expects the worker to compute `tokens` tokens of it.

        Call `done` with the seconds to the first token.
        """
        sent, new_part = self._clock.now, tokens / prompt.tokens
        expected = self._worker.begin(tokens, unheld, new_part=new_part)

        def begin() -> None:
            clock = self._clock
            if self._free_at > clock.now:
                clock.at(self._free_at, begin)
                return
            reply = 1 + prompt.request.output_tokens // BLOCK_SIZE
            hits, stored, evicted = self._cache.start(prompt.blocks, reply)
            # An engine always computes the last token of a prompt.
            hits = min(hits, (prompt.tokens - 1) // BLOCK_SIZE)
            computed = prompt.tokens - hits * BLOCK_SIZE
            self.computed += computed
            self._free_at = first = clock.now + computed / self._speed.tokens_per_s
            batch = Batch(0.0, [BlocksRemoved([*evicted]), BlocksStored([*stored], BLOCK_SIZE)])
            clock.at(first, answer)
            clock.at(first + EVENTS_S, lambda: self._rank.apply(batch, is_live=False))
            reply_s = prompt.request.output_tokens * self._speed.reply_token_s
            clock.at(first + reply_s, lambda: end(first - sent))

        def answer() -> None:
            self._worker.begin_response(tokens, new_part=new_part)
            self._fleet.note_answer(self._worker, tokens, prompt.tokens)

        def end(first_token_s: float) -> None:
            self._worker.end()
            self._cache.end(prompt.blocks)
            self._clock.at(
                self._clock.now + GRACE_S, lambda: self._worker.expected.remove(expected)
            )
            done(first_token_s)

        begin()


class _NoConversations(Conversations):
    """Without conversations no worker is crowded."""

    def add(self, url: str, new_tokens: int, prompt_tokens: int, cached_tokens: int) -> None:
        """Add nothing."""


class SimulatedFleet:
    """A gateway's router in front of simulated workers."""

    def __init__(
        self, policy: str, workers: int, blocks: int, speed: Speed, *, names_media: bool
    ) -> None:
        self._names_media = names_media
        name = POLICIES[0] if policy == WITHOUT_EVICTIONS else policy
        settings = GatewaySettings.model_validate({"policy": name})
        fleet = Fleet(settings)
        if policy == WITHOUT_EVICTIONS:
            fleet.conversations = _NoConversations()
        urls = [f"http://worker-{number}" for number in range(workers)]
        fleet.index = Index([EventSource(url, "tcp://127.0.0.1:1") for url in urls])
        self.clock = Clock()
        self.workers = {}
        for url in urls:
            worker = fleet.workers[url] = Worker(WorkerSpec(url, ENGINE_SPEC), settings)
            worker.readmit()
            self.workers[url] = SimulatedWorker(worker, fleet, self.clock, blocks, speed)
        fleet.cached_tokens = workers * blocks * BLOCK_SIZE
        self._fleet, self._policy = fleet, settings.policy

    def send(self, prompt: Prompt, done: Callable[[float], None]) -> None:
        """Send a prompt to its best worker. `done` gets the seconds to the first token."""
        end = len(prompt.blocks) if self._names_media else prompt.before_media
        named = prompt.blocks[:end]
        unnamed = UnnamedBlocks([b"%d" % one for one in prompt.blocks[end:]], BLOCK_SIZE)
        matches = self._fleet.index.match(named, BLOCK_SIZE)
        matched = {url: match.tokens for url, match in matches.items()}
        size = PlanSize(prompt.tokens, len(prompt.blocks))
        prepared = Prepared(
            b"", "planned", prompt.first_key, size, matched, named, BLOCK_SIZE, unnamed
        )
        decision = rank_workers(self._fleet, self._policy, {ENGINE_SPEC: prepared})
        best = decision.workers[0]
        tokens = decision.new_tokens
        worker = self._fleet.workers[best.url]
        self._fleet.note_choice(worker)
        worker.sent.add(unnamed, self._fleet.cached_tokens_each)
        self.workers[best.url].take(prompt, tokens, prepared.unheld_blocks(best), done)

    @contextmanager
    def closing(self) -> Iterator["SimulatedFleet"]:
        """Close the index at the end."""
        try:
            yield self
        finally:
            self._fleet.index.stop()


def replay(
    prompts: Sequence[Prompt],
    policy: str,
    workers: int,
    speed: Speed = DEFAULT_SPEED,
    *,
    names_media: bool = True,
) -> Outcome:
    """Replay a trace. `names_media` is False for an engine whose events do not name media."""
    following = {(one.request.session, one.request.turn): one for one in prompts}
    times: list[float] = []
    blocks = cache_tokens(workers) // BLOCK_SIZE
    with SimulatedFleet(policy, workers, blocks, speed, names_media=names_media).closing() as fleet:

        def send(one: Prompt) -> None:
            request = one.request
            turn = following.get((request.session, request.turn + 1))

            def done(first_token_s: float) -> None:
                times.append(first_token_s)
                if turn is not None:
                    fleet.clock.at(turn.request.at, lambda: send(turn))

            fleet.send(one, done)

        def send_at_arrival(one: Prompt) -> None:
            fleet.clock.at(one.request.at, lambda: send(one))

        for one in prompts:
            if one.request.turn == 0:
                send_at_arrival(one)
        fleet.clock.run()
        total = sum(one.tokens for one in prompts)
        computed = sum(worker.computed for worker in fleet.workers.values())
        p99 = statistics.quantiles(times, n=100, method="inclusive")[98]
        cached = 100 * (1 - computed / total)
        return Outcome(cached, 1e3 * statistics.fmean(times), 1e3 * p99)


def main() -> None:
    """Print a Markdown table of cached tokens and times to the first token, over some seeds."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet.simulation", description=__doc__)
    parser.add_argument("--workers", type=int, action="append", help="default: 2 and 4")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tokens-per-s", type=float, default=DEFAULT_SPEED.tokens_per_s)
    parser.add_argument("--reply-token-s", type=float, default=DEFAULT_SPEED.reply_token_s)
    parser.add_argument(
        "--unnamed", action="store_true", help="events name no block behind an image (SGLang)"
    )
    parser.add_argument("--unseen", action="store_true", help="the traces of bench/fleet/unseen.py")
    traces = {one.name: one for one in (*TRACES.values(), system_prompt_only())}
    parser.add_argument("--trace", action="append", choices=traces, help="default: all")
    arguments = parser.parse_args()
    speed = Speed(arguments.tokens_per_s, arguments.reply_token_s)
    policies: tuple[str, ...]
    cases: list[tuple[LiveTrace | MixedTrace, int]]
    if arguments.unseen:
        cases, policies = UNSEEN, (POLICIES[0], WITHOUT_EVICTIONS, *POLICIES[1:])
    else:
        chosen = [traces[name] for name in arguments.trace or traces]
        cases, policies = [*product(chosen, arguments.workers or [2, 4])], POLICIES
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    print(f"| simulated workers | trace | the most | {' | '.join(policies)} |")
    print("| ---: | --- | ---: |" + " ---: |" * len(policies))
    for trace, workers in cases:
        plans = [plan(trace.with_seed(seed).requests()) for seed in seeds]
        most = [100 * most_cached(one) / sum(each.tokens for each in one) for one in plans]
        found = [
            [
                replay(one, policy, workers, speed, names_media=not arguments.unnamed)
                for one in plans
            ]
            for policy in policies
        ]
        print(
            f"| {workers} | {trace.name} | {statistics.fmean(most):.1f} % "
            f"| {' | '.join(_means(one) for one in found)} |",
            flush=True,
        )


def _means(outcomes: Sequence[Outcome]) -> str:
    columns = zip(*outcomes, strict=True)
    cached, mean_ms, p99_ms = (statistics.fmean(column) for column in columns)
    return f"{cached:.1f} %, {mean_ms:.0f}, {p99_ms:.0f} ms"


if __name__ == "__main__":
    main()
