"""The calls beside `POST /hash` answer what the library does."""

from base64 import b64encode
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

import mmhash
from mmhash.client import Blocks, Span
from mmhash.engines import sglang, vllm
from mmhash.engines.registry import known

IDS = list(range(40))
KEY = mmhash.key(b"an image")


def chat(*contents: bytes) -> dict[str, Any]:
    urls = [f"data:image/png;base64,{b64encode(content).decode()}" for content in contents]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
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


def test_any_text_comes_back_as_it_was(connect: Any, url: str) -> None:
    for text in ("", "ü€𝄞", '\0\n"\\'):
        asked = {"model": text, "messages": [{"role": "user", "content": text}], text: [1.5, None]}
        with connect(url) as client:
            assert client.annotate(asked, engine="vllm") == (asked, [])


def test_what_no_text_can_hold_is_refused(connect: Any, url: str) -> None:
    with connect(url) as client, pytest.raises(mmhash.InputValueError, match="JSON"):
        client.annotate({"messages": [{"content": "half a pair: \ud834"}]}, engine="vllm")


def test_annotate_by_pixels(connect: Any, url: str) -> None:
    image, file = Image.new("RGB", (30, 20), "navy"), BytesIO()
    image.save(file, "PNG")
    with connect(url, tenant="acme") as client:
        _, items = client.annotate(
            chat(file.getvalue()), engine="vllm", of="pixels", algorithm="xxh3"
        )
    tenant = bytes.fromhex("11" * 32)
    assert items[0].key == mmhash.key(image, algorithm="xxh3", tenant=tenant)


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


def test_blocks_of_an_engine_as_it_was_started(connect: Any, url: str) -> None:
    options: dict[str, Any] = {"block_algorithm": "xxhash", "seed": "0", "lookahead": 1}
    with connect(url) as client:
        answer = client.blocks(
            IDS,
            8,
            engine="vllm@0.34.0",
            engine_fallback="nearest-older",
            lora="l",
            lora_path="/l",
            groups=[16],
            **options,
        )
    lora = vllm.Lora("l", "/l")
    keys = vllm.block_keys(IDS, 8, lora=lora, version="0.33.0", **options)
    assert len(keys) == 4
    assert answer.blocks == [key.hex() for key in keys]
    assert answer.groups[16].blocks == answer.blocks[1::2]
    assert answer.recipe == "vllm@0.33.0"


def test_info(connect: Any, url: str) -> None:
    with connect(url) as client:
        assert client.info()["engines"] == known()
