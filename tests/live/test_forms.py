"""Plans of random requests of each form: ids and block names are those of the engine.

MMHASH_LIVE_REQUESTS is the number of requests of each form.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

from mmhash.kvindex.table import block_ids
from mmhash.prompts import Model, Plan
from tests.live import prompts, random_requests
from tests.live.engines import Engine
from tests.live.random_requests import Random

RELEASES = ("vllm@0.32.0",)
WITHOUT_GUARD = True

COUNT = int(os.environ.get("MMHASH_LIVE_REQUESTS", "100"))

FORMS: dict[str, Callable[[Random], dict[str, Any]]] = {
    "/v1/messages": random_requests.messages,
    "/v1/responses": random_requests.responses,
}


@pytest.mark.parametrize("path", FORMS)
def test_random_requests_are_planned_as_the_engine_reads_them(engine: Engine, path: str) -> None:
    model = Model.load(engine.environment.model("qwen2_vl"))
    engine.events.settle()
    held: set[int] = set()
    differences: list[str] = []
    planned = blocks = 0
    for seed in range(COUNT):
        request = FORMS[path](Random(engine.name, seed))
        plan = model.plan(
            request,
            engine.spelling,
            path=path,
            block_size=engine.block_size,
            block_algorithm=engine.algorithm,
            seed=engine.seed,
        )
        if len(plan.token_ids) >= prompts.MAX_TOKENS:
            continue
        planned += 1
        if _rendered(engine, path, plan) != plan.token_ids:
            differences.append(f"{seed}: other token ids")
        answer = engine.post(path, plan.request)
        assert answer.status_code == 200, f"{seed}: {answer.text[:1000]}"
        whole = len(plan.token_ids) // engine.block_size
        expected = [one for one in block_ids(plan.event_ids) if one not in held]
        behind = whole - len(plan.event_ids)  # an image without a hash, and what follows it
        stored = prompts.published(engine.events.wait(len(expected) + behind))
        held.update(stored)
        blocks += len(expected)
        if stored[: len(expected)] != expected or len(stored) != len(expected) + behind:
            differences.append(f"{seed}: other blocks")
    assert not differences
    assert planned > 0.9 * COUNT
    assert blocks > planned


def _rendered(engine: Engine, path: str, plan: Plan) -> list[int]:
    """Return the ids of a request as vLLM renders it."""
    answer = engine.post(f"{path}/render", {**plan.request, "mm_payload": "none"})
    assert answer.status_code == 200, answer.text[:1000]
    ids: list[int] = answer.json()["token_ids"]
    return ids
