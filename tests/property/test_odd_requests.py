"""Requests with wrong values anywhere: a plan refuses each by an error of its own."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from mmhash.errors import MMHashError
from mmhash.prompts import Model
from tests.live import random_requests
from tests.support import prompt_models

FORMS = {
    "/v1/chat/completions": random_requests.chat,
    "/v1/completions": random_requests.completions,
    "/v1/messages": random_requests.messages,
    "/v1/responses": random_requests.responses,
}
ODD: tuple[Any, ...] = (
    *(None, 0, -1, 1.5, True, 1 << 70, "", "x", "data:,", [], [1], [[]], [{}], {}),
    *({"type": "x"}, {"type": []}, {"type": {}}, {"a": None}),
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of each value inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for step, one in inner:
        yield (*path, step)
        if isinstance(one, (dict, list)):
            yield from places(one, (*path, step))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model.load(prompt_models.write_qwen2_vl(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("engine", ["vllm@0.32.0", "sglang@0.5.23", "sglang@0.5.20"])
def test_a_wrong_value_is_refused_by_name(model: Model, path: str, engine: str) -> None:
    count = 2 * settings().max_examples
    planned = 0
    for seed in range(count):
        rng = random.Random(seed)
        request = FORMS[path](random_requests.Random(engine.partition("@")[0], seed))
        *steps, last = rng.choice(list(places(request)))
        holder: Any = request
        for step in steps:
            holder = holder[step]
        holder[last] = copy.deepcopy(rng.choice(ODD))
        try:
            model.plan(request, engine, path=path)
            planned += 1
        except MMHashError:
            pass
    assert 0 < planned < count
