"""A soak can fail: by a wrong answer, a lost request, a leak."""

import random
from typing import Any

import httpx
import pytest

from tests.soak import oracle, verdict
from tests.soak.load import Outcome, judge
from tests.soak.questions import Question


def series(growth: float, level: float = 200.0, noise: float = 2.0) -> list[float]:
    draw = random.Random(0)
    return [level + growth * at / 600 + draw.gauss(0, noise) for at in range(600)]


@pytest.mark.parametrize("growth", [-50.0, 0.0, 5.0])
def test_what_stays_is_flat(growth: float) -> None:
    assert verdict.second_half(series(growth)).is_flat


@pytest.mark.parametrize("growth", [25.0, 100.0])
def test_a_leak_is_not_flat(growth: float) -> None:
    trend = verdict.second_half(series(growth))
    assert not trend.is_flat
    assert trend.growth == pytest.approx(growth / 2, abs=2)  # of the half


def test_noise_alone_is_flat_however_loud() -> None:
    assert verdict.second_half(series(0, noise=80)).is_flat


def test_a_service_that_grows_to_its_size_and_stays_there_is_flat() -> None:
    assert verdict.second_half([min(100.0 + at, 200.0) for at in range(600)]).is_flat


def test_one_descriptor_that_leaks_each_minute_is_not_flat() -> None:
    assert not verdict.second_half([70.0 + at // 60 for at in range(600)]).is_flat


def answer(content: bytes) -> httpx.Response:
    item = oracle.item(content) | {"memo": "miss"}
    return httpx.Response(200, json={"items": [item], "elapsed_ms": 1.5})


def test_an_answer_is_right_only_if_it_is_the_librarys() -> None:
    async def ask() -> Any:
        raise NotImplementedError

    one = Question("octets", {"items": [oracle.item(b"abc")]}, ask)
    assert judge(one, oracle.answer_of(answer(b"abc"))) == "right"
    assert judge(one, oracle.answer_of(answer(b"xyz"))) == "wrong"
    assert judge(one, oracle.answer_of(httpx.Response(200, json={"items": []}))) == "wrong"
    problem = httpx.Response(422, json={"type": "urn:mmhash:problem:invalid-tensor"})
    assert judge(one, oracle.answer_of(problem)) == "wrong"
    assert judge(one._replace(expected="invalid-tensor"), oracle.answer_of(problem)) == "right"


def test_the_oracle_says_what_the_spec_and_the_docs_say() -> None:
    assert oracle.item(b"abc") == {
        "name": None,
        "kind": "bytes",
        "dtype": "",
        "shape": [],
        "nbytes": 3,
        "algorithm": "blake3",
        "digest": "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        "key": "0f3e80300d68299e5b82028b5a8d7ba80df85ea3c212e44e298bc6ae728bac59",
    }


def test_a_wrong_a_lost_and_an_unanswered_kind_fail_the_run() -> None:
    right = Outcome("redis", "octets", "right", 0.01, 0)
    assert verdict.failures([right, right._replace(verdict="cancelled")]) == []
    for bad in ("wrong", "lost"):
        assert len(verdict.failures([right, right._replace(verdict=bad)])) == 1
    never = right._replace(kind="pad", verdict="cancelled")
    assert verdict.failures([right, never]) == ["no answer at all to pad"]
