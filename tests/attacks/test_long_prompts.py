"""Prompts of megabytes or millions of tokens, so that all threads plan and nothing else is answered.

Prompts have threads of their own, long ones a single one; what is longer still is refused.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import mmhash
from mmhash.cpu import cpu_count
from mmhash.kvindex.table import BlockTable
from mmhash.prompts import Model, Plan
from mmhash.prompts.families.family import MAX_TOKENS
from mmhash.prompts.templates import MAX_TEXT
from mmhash_service.gateway.expected import name_blocks
from mmhash_service.gateway.policy import Ranked
from mmhash_service.gateway.router import Prepared
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
    with serving(
        models={"tiny": str(folder)}, work_timeout_s=120, max_held_bytes=256 << 20
    ) as server:
        yield server


def chat(text: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}]}).encode()


def blocks(length: int) -> bytes:
    body = {"engine": "sglang@0.5.23", "block_size": 1, "input_ids": [1] * length}
    return json.dumps(body).encode()


class Watched(list[int]):
    """The blocks of a prompt, which count how many of them are looked at."""

    looked_at = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.looked_at += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self) -> Iterator[int]:
        self.looked_at += len(self)
        return super().__iter__()


def test_new_blocks_are_not_looked_up_to_the_end() -> None:
    """A million blocks took the gateway's event loop 0.1 s, and 1 s if workers had them."""
    table = BlockTable(MAX_TOKENS)
    table.store(table.open(), "GPU", 0, range(100_000))
    for prompt, known in (
        (Watched(range(1, MAX_TOKENS)), 99_999),
        (Watched(range(MAX_TOKENS, 0, -1)), 0),
    ):
        assert table.match(prompt).in_any == ({0: known} if known else {})
        assert prompt.looked_at < known + 10_000


def test_few_of_many_blocks_are_expected_and_named() -> None:
    ids = list(range(MAX_TOKENS))
    prepared = Prepared(b"", "planned", event_ids=ids)
    ranked = Ranked("http://a:1", matched_tokens=5, load=0.0, score=0.0)
    expected = prepared.unheld_blocks(ranked)
    assert expected == ids[5 : 5 + len(expected)]
    assert 0 < len(expected) < 10_000
    names = name_blocks(Plan(ids, [], [], [], [], {}), 1).names
    assert 0 < len(names) < 10_000


HOSTILE_TEXTS = {
    "one word": "a",
    "combining characters": "e\u0301\u0323",
    "spaces": " ",
    "line ends": "\r\n",
    "apostrophes": "'",
    "half a named token": "<|im_start",
    "digits": "1",
    "a ligature that expands": "\ufdfa",
}


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_other_threads_run_while_a_text_is_encoded(tmp_path: Path, text: str) -> None:
    """A tokenizer that holds Python's lock holds the event loop."""
    model = Model.load(prompt_models.write_qwen2_vl(tmp_path))
    with ThreadPoolExecutor(1) as thread:
        long = text * (MAX_TEXT // len(text) // 2)
        encoded = thread.submit(model.encode, long, add_special_tokens=False)
        turns = 0
        while not encoded.done():
            time.sleep(0.001)
            turns += 1
    assert encoded.result()
    assert turns > 10  # 1 to 4 if it holds the lock


@pytest.mark.parametrize(
    ("path", "body"), [(PLAN, chat("a b " * 50_000)), ("/blocks", blocks(140_000))]
)
def test_others_are_answered_meanwhile(planning: Any, path: str, body: bytes) -> None:
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
def test_what_is_longer_is_refused(planning: Any, name: str) -> None:
    problem, body = REFUSED[name]
    answer = planning.client.post(PLAN, json=body, timeout=300)
    assert refusal_of(answer) == problem
