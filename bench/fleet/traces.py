"""The traces of the comparison, small enough for engines on a CPU, and their prompts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bench.fleet.workers import MODEL
from bench.trace.content import openai_request
from bench.trace.records import Request
from bench.trace.workload import (
    AGENTS,
    DOCUMENTS,
    REFERENCES,
    SAME_QUESTION,
    SERVEGEN,
    VISIONARENA,
    Workload,
    generate,
    scaled,
)
from mmhash.prompts import Model
from tests.live.environments import Environment

# Two cores run tiny models, so the traces have fewer tokens and slower arrivals.
SCALE = 0.2
REPLY_SCALE = 0.04
SCREENSHOT_SCALE = 0.05  # 33 screenshots must fit into 4096 tokens
CONTEXT = 3800
# A tenth of the system prompt in llm-d's benchmark of shared prefixes.
SYSTEM = 600

ENGINE, RELEASE, BLOCK_SIZE = "vllm", "0.32.0", 32


class LiveTrace(NamedTuple):
    """A workload that is small enough for engines on a CPU."""

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

    def with_seed(self, seed: int) -> "LiveTrace":
        """Return the same workload, drawn with another seed."""
        return self._replace(workload=replace(self.workload, seed=seed))

    def grown(self, factor: float, *, rate: float = 1.0, **knobs: Any) -> "LiveTrace":
        """Return the workload of a larger fleet, with `factor` times the sessions in the same time.

        `rate` multiplies the sessions per second again.
        """
        load = self.workload
        sessions, rate = round(load.sessions * factor), load.rate * factor * rate
        return self._replace(workload=replace(load, sessions=sessions, rate=rate, **knobs))


# With their reuse, 75 sessions have a working set of about 24 600 tokens.
_SERVEGEN = replace(SERVEGEN, sessions=75, tenants=4, rate=3.0, system=SYSTEM)
# Four applications, whose system prompts describe their tools. Concurrent sessions just fit into
# the caches.
_AGENTS = replace(
    AGENTS,
    sessions=12,
    clients=4,
    top_clients=1,
    top_share=0.4,
    rate=0.55,
    pause_s=1.0,
    system=5 * SYSTEM,
)
TRACES = {
    one.name: one
    for one in (
        LiveTrace(replace(REFERENCES, rate=4.0, system=SYSTEM), SCALE),
        LiveTrace(replace(VISIONARENA, sessions=56, rate=2.0, pause_s=2.5, system=SYSTEM), SCALE),
        LiveTrace(_SERVEGEN, SCALE),
        LiveTrace(_AGENTS, SCREENSHOT_SCALE),
        LiveTrace(replace(DOCUMENTS, rate=5.0), SCALE),
        LiveTrace(replace(SAME_QUESTION, rate=5.0), SCALE),
        LiveTrace(replace(_SERVEGEN, sessions=30).without_reuse(), SCALE),
    )
}


class Prompt(NamedTuple):
    """A request of a trace with the blocks that vLLM names."""

    request: Request
    blocks: tuple[int, ...]
    tokens: int
    first_key: bytes
    before_media: int
    """The number of blocks before the first image."""


def plan(requests: Sequence[Request]) -> list[Prompt]:
    """Return the prompts of requests."""
    model = Model.load(Environment(ENGINE, RELEASE).model(MODEL))
    prompts = []
    for request in requests:
        body = openai_request(request, "tiny", letters_per_token=1)
        one = model.plan(body, f"{ENGINE}@{RELEASE}", block_size=BLOCK_SIZE)
        key = one.items[0].key.bytes if one.items else b""
        blocks = tuple(one.event_ids)
        before_media = one.spans[0].start // BLOCK_SIZE if one.spans else len(blocks)
        prompts.append(Prompt(request, blocks, len(one.token_ids), key, before_media))
    return prompts


def working_set(prompts: Sequence[Prompt]) -> int:
    """Return how many tokens the different blocks have."""
    return BLOCK_SIZE * len({block for one in prompts for block in one.blocks})


def most_cached(prompts: Sequence[Prompt]) -> int:
    """Return how many tokens one worker with an endless cache would have cached."""
    seen: set[int] = set()
    tokens = 0
    for one in prompts:
        # An engine always computes the last token of a prompt.
        for block in one.blocks[: (one.tokens - 1) // BLOCK_SIZE]:
            if block not in seen:
                break
            tokens += BLOCK_SIZE
        seen.update(one.blocks)
    return tokens
