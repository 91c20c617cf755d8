"""Requests about prompts, which are for an engine: to annotate, to pad, to cut into blocks."""

import base64
import json
from functools import partial
from typing import Any

import mmhash
from mmhash.client import Span
from mmhash.engines import sglang, vllm
from tests.soak.context import Asked, LoadContext
from tests.soak.pictures import picture


def annotate(context: LoadContext) -> Asked:
    """A chat or a /generate request with a picture in it."""
    file, _ = picture(context)
    url = f"data:image/png;base64,{base64.b64encode(file).decode()}"
    key = mmhash.key(file)
    headers = {"Accept": "application/vnd.mmhash.request+json", "Content-Type": "application/json"}
    if context.draw.random() < 0.5:
        engine, request = "sglang@0.5.23", {"text": "What is it?", "image_data": [url]}
        expected: dict[str, Any] = request | {"mm_hashes": [sglang.mm_hash(key)]}
    else:
        part = {"type": "image_url", "image_url": {"url": url}}
        engine, request = "vllm", _chat(part)
        expected = _chat(part | {"uuid": vllm.uuid(key)})
    return expected, partial(
        context.post,
        "/annotate",
        content=json.dumps(request),
        headers=headers,
        params={"engine": engine},
    )


def _chat(part: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": [part]}]}


def pad(context: LoadContext) -> Asked:
    """A prompt as SGLang pads it."""
    ids, span = _prompt(context)
    expected = sglang.pad_input_ids(ids, [(span.start, span.end, _hash_of(span))])
    body = {"engine": "sglang", "input_ids": ids, "spans": [span.payload()]}
    return {"input_ids": expected}, partial(context.post, "/pad", json=body)


def blocks(context: LoadContext) -> Asked:
    """A prompt's blocks as vLLM names them."""
    ids, span = _prompt(context)
    body = {"engine": "vllm", "input_ids": ids, "block_size": 16, "spans": [span.payload()]}
    items = [vllm.Span(vllm.uuid(span.key), span.start, span.end - span.start)]
    keys = vllm.block_keys(ids, 16, items=items)
    expected = {
        "blocks": [key.hex() for key in keys],
        "event_ids": [vllm.event_id(key) for key in keys],
    }
    return expected, partial(context.post, "/blocks", json=body)


def _prompt(context: LoadContext) -> tuple[list[int], Span]:
    ids = [context.draw.randrange(50_000) for _ in range(context.draw.randint(20, 2000))]
    start = context.draw.randrange(len(ids) - 10)
    return ids, Span(start, start + 10, mmhash.key(context.content(1 << 16)))


def _hash_of(span: Span) -> int:
    return int(sglang.mm_hash(span.key), 16)
