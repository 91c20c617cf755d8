"""A worker gets no requests for models that only other workers serve."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from tests.support.gateway import EngineProcess, gateway_before, healthy
from tests.support.waiting import wait_until

PATH = "/v1/chat/completions"


def chat(**members: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hello"}]} | members


@contextmanager
def running(*engines: EngineProcess) -> Iterator[None]:
    with ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.kill)
            engine.start()
        yield


@contextmanager
def fleet_of(*workers: str, **settings: Any) -> Iterator[httpx.Client]:
    with (
        gateway_before(list(workers), settings=settings) as gateway,
        gateway.new_client() as client,
    ):
        wait_until(lambda: all(healthy(client)))
        yield client


def names(client: httpx.Client, path: str, **members: Any) -> set[str]:
    """Send a request several times, and return the workers that answered."""
    answers = [client.post(path, json=chat(**members)) for _ in range(6)]
    assert {answer.status_code for answer in answers} == {200}
    return {answer.json()["worker"] for answer in answers}


@pytest.mark.slow
def test_a_worker_of_another_model_gets_no_requests_for_this_one() -> None:
    first, second = EngineProcess("first", "tiny"), EngineProcess("second", "tiny", "adapter")
    other = EngineProcess("other", "other")
    with running(first, second, other):
        turns = {"gateway.policy": "round-robin"}
        with fleet_of(other.url, first.url, second.url, **turns) as client:
            for path in (PATH, "/v1/completions", "/v1/embeddings", "/tokenize"):
                assert names(client, path, model="tiny") == {"first", "second"}
                assert names(client, path, model="other") == {"other"}
                assert names(client, path, model="adapter") == {"second"}
            long = json.dumps(chat(padding="x" * (1 << 20), model="tiny"))
            answers = [client.post(PATH, content=long).json() for _ in range(4)]
            assert {one["worker"] for one in answers} == {"first", "second"}
            assert names(client, "/generate") == {"first", "second", "other"}
            states = client.get("/workers").json()["workers"]
            assert [one["models"] for one in states] == [["other"], ["tiny"], ["adapter", "tiny"]]
            routed = client.post("/route", json=chat(model="tiny")).json()["workers"]
            assert {one["url"] for one in routed} == {first.url, second.url}
        assert other.state()["seen"].count("another model") == 0
