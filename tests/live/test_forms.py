"""Plans random requests of each form, and compares ids and block names with the engine's.

MMHASH_LIVE_REQUESTS is the number of requests of each form and engine.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

from mmhash.kvindex import BlocksStored
from mmhash.kvindex.table import block_ids
from mmhash.prompts import Model, Plan
from tests.live import prompts, random_requests
from tests.live.engines import Engine
from tests.live.random_requests import Random

RELEASES = ("vllm@0.32.0", "sglang@0.5.23", "sglang@0.5.20")
WITHOUT_GUARD = True

COUNT = int(os.environ.get("MMHASH_LIVE_REQUESTS", "100"))

FORMS: dict[str, Callable[[Random], dict[str, Any]]] = {
    "/v1/chat/completions": random_requests.chat,
    "/v1/completions": random_requests.completions,
    "/v1/messages": random_requests.messages,
    "/v1/responses": random_requests.responses,
}


@pytest.mark.parametrize("path", FORMS)
def test_random_requests_are_planned_as_the_engine_reads_them(engine: Engine, path: str) -> None:
    model = Model.load(engine.environment.model("qwen2_vl"))
    engine.events.settle()
    if engine.name == "sglang":
        engine.post("/flush_cache", {})
    cache = Cache()
    differences: list[str] = []
    planned = named = 0
    for seed in range(COUNT):
        request = FORMS[path](Random(engine.name, seed))
        asked = {"block_size": engine.block_size, "path": path}
        if engine.name == "vllm":
            asked["seed"] = engine.seed
        if engine.name == "vllm" and seed % 2:  # the engine names the images itself
            asked |= {"hashes": "engine", "model_id": str(engine.environment.model("qwen2_vl"))}
        plan = model.plan(request, engine.spelling, **asked)
        if max(plan.lengths) >= prompts.MAX_TOKENS:
            continue
        planned += 1
        # SGLang takes no key in these forms. It names an image by its processed pixels.
        sent = request if engine.name == "sglang" else plan.request
        if "hashes" in asked:
            assert sent == request, seed
        if engine.name == "vllm" and _rendered(engine, path, sent) != plan.token_ids:
            differences.append(f"{seed}: other token ids")
        answer = engine.post(path, sent)
        assert answer.status_code == 200, f"{seed}: {answer.text[:1000]}"
        wholes = [length // engine.block_size for length in plan.lengths]
        expected = block_ids(plan.event_ids)
        held = cache.count(expected)
        cache.add(engine.events.wait(sum(wholes) - held))
        named += len(expected) - held
        if cache.count(expected) < len(expected):
            differences.append(f"{seed}: other blocks")
        if _count(answer.json()) != len(plan.token_ids):
            differences.append(f"{seed}: {_count(answer.json())} ids, not {len(plan.token_ids)}")
        elif len(wholes) == 1 and cache.differs(plan, wholes[0] * engine.block_size):
            differences.append(f"{seed}: other ids in blocks")
    assert not differences, differences
    assert planned > 0.9 * COUNT, planned
    assert named > planned


class Cache:
    """The blocks that an engine has stored, each with its predecessor and its tokens."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[int | None, list[int]]] = {}
        self._last: int | None = None

    def add(self, stored: list[BlocksStored]) -> None:
        for event in stored:
            parent, size = event.parent, event.block_size
            for number, name in enumerate(event.ids):
                its = event.tokens[number * size : (number + 1) * size]
                self._blocks[name] = (parent, its)
                self._last = parent = name

    def count(self, names: list[int]) -> int:
        """Return how many of a prompt's blocks are stored."""
        return sum(name in self._blocks for name in names)

    def differs(self, plan: Plan, length: int) -> bool:
        """Return True if the last stored prompt and a plan differ in tokens other than images'."""
        tokens: list[int] = []
        name = self._last if length else None
        while name is not None:
            name, its = self._blocks[name]
            tokens = its + tokens
        ours = plan.token_ids[:length]
        for item in plan.items:
            for start, end in item.embeds:
                ours[start:end] = tokens[start:end]
        return tokens != ours[:length]


def _rendered(engine: Engine, path: str, request: dict[str, Any]) -> list[int]:
    """Return the token ids of a request, as vLLM renders it."""
    answer = engine.post(f"{path}/render", {**request, "mm_payload": "none"})
    assert answer.status_code == 200, answer.text[:1000]
    found = answer.json()
    return [
        one for part in (found if isinstance(found, list) else [found]) for one in part["token_ids"]
    ]


def _count(answer: dict[str, Any]) -> int:
    """Return how many tokens the prompt had, including cached tokens."""
    usage = answer["usage"]
    if "prompt_tokens" in usage:
        return int(usage["prompt_tokens"])
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage.get(part) or 0 for part in parts)
