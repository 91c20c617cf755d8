"""Requests about prompts, which are for an engine: to annotate, to pad, to cut into blocks."""

import base64
import json
from functools import partial
from typing import Any

import mmhash
from bench.soak.means import Asked, Means
from bench.soak.pictures import picture
from mmhash.client import KeySpan
from mmhash.engines import sglang, vllm


def annotate(means: Means) -> Asked:
    """A chat or a /generate request with a picture in it."""
    file, _ = picture(means)
    url = f"data:image/png;base64,{base64.b64encode(file).decode()}"
    key = mmhash.key(file)
    headers = {"Accept": "application/vnd.mmhash.request+json", "Content-Type": "application/json"}
    if means.draw.random() < 0.5:
        engine, request = "sglang@0.5.23", {"text": "What is it?", "image_data": [url]}
        expected: dict[str, Any] = request | {"mm_hashes": [sglang.mm_hash(key)]}
    else:
        part = {"type": "image_url", "image_url": {"url": url}}
        engine, request = "vllm", _chat(part)
        expected = _chat(part | {"uuid": vllm.uuid(key)})
    return expected, partial(
        means.post,
        "/annotate",
        content=json.dumps(request),
        headers=headers,
        params={"engine": engine},
    )


def _chat(part: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": [part]}]}


def pad(means: Means) -> Asked:
    """A prompt as SGLang pads it."""
    ids, span = _prompt(means)
    expected = sglang.pad_input_ids(ids, [(span.start, span.end, _hash_of(span))])
    body = {"engine": "sglang", "input_ids": ids, "spans": [span.payload()]}
    return {"input_ids": expected}, partial(means.post, "/pad", json=body)


def blocks(means: Means) -> Asked:
    """A prompt's blocks as vLLM names them."""
    ids, span = _prompt(means)
    body = {"engine": "vllm", "input_ids": ids, "block_size": 16, "spans": [span.payload()]}
    items = [vllm.Span(vllm.uuid(span.key), span.start, span.end - span.start)]
    expected = [key.hex() for key in vllm.block_keys(ids, 16, items=items)]
    return {"blocks": expected}, partial(means.post, "/blocks", json=body)


def _prompt(means: Means) -> tuple[list[int], KeySpan]:
    ids = [means.draw.randrange(50_000) for _ in range(means.draw.randint(20, 2000))]
    start = means.draw.randrange(len(ids) - 10)
    return ids, KeySpan(start, start + 10, mmhash.key(means.content(1 << 16)))


def _hash_of(span: KeySpan) -> int:
    return int(sglang.mm_hash(span.key), 16)
