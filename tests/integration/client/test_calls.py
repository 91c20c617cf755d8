"""The calls other than `POST /hash` return what the library does."""

from pathlib import Path
from typing import Any

import pytest

import mmhash
from mmhash.client import Blocks, Span
from mmhash.engines import sglang, vllm
from mmhash.engines.registry import known
from mmhash.prompts import Model
from tests.support.images import image_part

IDS = list(range(40))
KEY = mmhash.key(b"an image")


def chat(*contents: bytes) -> dict[str, Any]:
    parts = [*map(image_part, contents)]
    return {"model": "m", "messages": [{"role": "user", "content": parts}], "seed": 2**63 - 1}


def test_annotate(connect: Any, url: str) -> None:
    asked = chat(b"one", b"two", b"one")
    with connect(url) as client:
        request, items = client.annotate(asked, engine="vllm@0.33.0")
    assert [item.key for item in items] == mmhash.keys([b"one", b"two", b"one"])
    for part, item in zip(request["messages"][0]["content"], items, strict=True):
        assert item.engines == {"vllm@0.33.0": {"uuid": item.key.hex()}}
        assert part.pop("uuid") == item.key.hex()
    assert request == asked


def test_any_text_survives_a_round_trip(connect: Any, url: str) -> None:
    for text in ("", "ü€𝄞", '\0\n"\\'):
        asked = {"model": text, "messages": [{"role": "user", "content": text}], text: [1.5, None]}
        with connect(url) as client:
            assert client.annotate(asked, engine="vllm") == (asked, [])


def test_a_lone_surrogate_is_refused(connect: Any, url: str) -> None:
    with connect(url) as client, pytest.raises(mmhash.InputValueError, match="JSON"):
        client.annotate({"messages": [{"content": "half a pair: \ud834"}]}, engine="vllm")


def test_pad(connect: Any, url: str) -> None:
    with connect(url) as client:
        newest = client.pad(IDS, [Span(4, 20, KEY)])
        older = client.pad(IDS, [Span(4, 20, KEY)], engine="sglang@0.5.8")
    assert newest == sglang.pad_input_ids(IDS, [(4, 20, KEY)])
    assert older == sglang.pad_input_ids(IDS, [(4, 20, KEY)], version="0.5.8")
    assert newest != older


def test_blocks(connect: Any, url: str) -> None:
    with connect(url) as client:
        of_vllm = client.blocks(
            IDS, 16, engine="vllm@0.30.0", spans=[Span(4, 20, KEY)], cache_salt="s"
        )
        of_sglang = client.blocks(IDS, 8, engine="sglang", extra_key="e")
    items = [vllm.Span(vllm.uuid(KEY), 4, 16)]
    keys = vllm.block_keys(IDS, 16, items=items, cache_salt="s", version="0.30.0")
    assert of_vllm == Blocks([key.hex() for key in keys], list(map(vllm.event_id, keys)))
    assert of_sglang.blocks == sglang.page_keys(IDS, 8, extra_key="e")
    assert of_sglang.event_ids == list(map(sglang.event_id, sglang.page_keys(IDS, 8)))


def test_plan(connect: Any, url: str, folder: Path) -> None:
    asked = {"messages": [{"role": "user", "content": "What is a multimodal cache key?"}]}
    with connect(url) as client:
        plan = client.plan(asked, model="tiny", engine="vllm", block_size=8)
    expected = Model.load(folder).plan(asked, "vllm", block_size=8)
    assert (plan.token_ids, plan.blocks) == (expected.token_ids, expected.blocks)
    assert plan.event_ids == expected.event_ids != []
    assert plan.request == asked


def test_info(connect: Any, url: str) -> None:
    with connect(url) as client:
        assert client.info()["engines"] == known()
