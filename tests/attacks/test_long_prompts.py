"""Prompts of megabytes or millions of tokens, to keep all threads busy.

Prompts are planned in threads of their own, long ones in a single thread. Longer ones are refused.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import mmhash
from mmhash.cpu import cpu_count
from mmhash.prompts.limits import MAX_TEXT, MAX_TOKENS
from tests.support import prompt_models
from tests.support.decoders import wait_for_ready
from tests.support.responses import refusal_of
from tests.support.victim import serving

pytestmark = pytest.mark.slow

JSON = {"content-type": "application/json"}
PLAN = "/plan?model=tiny&engine=sglang@0.5.23"


@pytest.fixture(scope="module")
def planning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = prompt_models.write_qwen2_vl(tmp_path_factory.mktemp("model"))
    with serving(models={"tiny": str(folder)}, timeout_s=120, max_held_bytes=256 << 20) as server:
        yield server


def chat(text: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}]}).encode()


def blocks(length: int) -> bytes:
    body = {"engine": "sglang@0.5.23", "block_size": 1, "input_ids": [1] * length}
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("path", "body"), [(PLAN, chat("a b " * 50_000)), ("/blocks", blocks(140_000))]
)
def test_other_requests_are_answered_meanwhile(planning: Any, path: str, body: bytes) -> None:
    count = 2 * cpu_count() + 2
    url = planning.client.base_url

    def send(_: int) -> httpx.Response:
        return httpx.post(url.join(path), content=body, headers=JSON, timeout=300)

    waits = []
    wait_for_ready(planning.client)  # before the prompts, with which decoders would share the cores
    start = time.monotonic()
    with ThreadPoolExecutor(count) as threads:
        prompts = [threads.submit(send, one) for one in range(count)]
        while not all(prompt.done() for prompt in prompts):
            sent = time.monotonic()
            assert planning.client.get("/ready", timeout=300).status_code == 200
            answer = planning.hash_json({"kind": "bytes", "data": "YWJj"})
            waits.append(time.monotonic() - sent)
            assert answer.json()["items"][0]["key"] == mmhash.key(b"abc").hex()
        assert {prompt.result().status_code for prompt in prompts} == {200}
    # In the queue of the prompts, one of them would have waited for nearly all.
    assert max(waits) < (time.monotonic() - start) / 2


REFUSED = {
    "text": ("unplannable-prompt", {"text": "a" * (MAX_TEXT + 1)}),
    "chat": ("unplannable-prompt", {"messages": [{"role": "user", "content": "a" * MAX_TEXT}]}),
    "tokens": ("unplannable-prompt", {"text": "a b " * (MAX_TOKENS // 4 + 100)}),
    "ids": ("body-too-large", {"input_ids": [1] * 200_000}),
    "objects": ("body-too-large", {"text": "a", "other": [{}] * 200_000}),
    "names": ("body-too-large", {"text": "a", "other": dict.fromkeys(map(str, range(100_000)))}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_longer_prompt_is_refused(planning: Any, name: str) -> None:
    problem, body = REFUSED[name]
    answer = planning.client.post(PLAN, json=body, timeout=300)
    assert refusal_of(answer) == problem
