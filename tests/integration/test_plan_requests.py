"""`/plan`, `/annotate` and the library put the same hashes into a request."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from mmhash.prompts import Model
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support import prompt_models
from tests.support.in_process import running


def _url(colour: str, mime: str = "image/png") -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (90, 60), colour).save(buffer, "PNG")
    return f"data:{mime};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _part(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **more}


def _chat(*parts: Any, **more: Any) -> dict[str, Any]:
    text = {"type": "text", "text": "what is it?"}
    return {"model": "m", "messages": [{"role": "user", "content": [*parts, text]}]} | more


RED, BLUE = _url("red"), _url("blue")
PAD = "<|vision_start|><|image_pad|><|vision_end|>"
CHATS = [
    _chat(),
    _chat(_part(RED)),
    _chat(_part(RED), _part(BLUE), _part(RED)),
    _chat(_part(RED, uuid="forged"), mmhash_tags=["a"], multi_modal_uuids={"image": ["b"]}),
    _chat({"type": "image_url", "image_url": {"url": RED, "content_hash": "forged", "detail": "low"}}),
    {"messages": [{"role": "system", "content": "short"}, *_chat(_part(BLUE))["messages"]]},
]  # fmt: skip
NATIVE = [
    {"text": f"{PAD}what is it?", "image_data": RED},
    {"text": f"{PAD}{PAD}", "image_data": [RED, BLUE.partition(",")[2]]},
    {"text": PAD, "image_data": [RED], "mm_hashes": ["f" * 16], "sampling_params": {"top_p": 0.5}},
    {"text": "no image"},
]
CASES = [
    *[("vllm@0.32.0", chat) for chat in CHATS],
    *[("vllm@0.19.0", chat) for chat in CHATS],
    *[("sglang@0.5.23", request) for request in (*CHATS, *NATIVE)],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prompt_models.write_qwen2_vl(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    with running(create_app(Settings(models={"tiny": folder}))) as server:
        yield server.client


@pytest.mark.parametrize(("engine", "request_"), CASES)
def test_requests_are_equal(
    client: httpx.Client, folder: Path, engine: str, request_: dict[str, Any]
) -> None:
    # The root of this release is random without a seed.
    query = {"engine": engine} | ({"seed": "0"} if engine == "vllm@0.19.0" else {})
    annotated = client.post("/annotate", params={"engine": engine}, json=request_)
    planned = client.post("/plan", params={"model": "tiny", "request": True} | query, json=request_)
    assert (annotated.status_code, planned.status_code) == (200, 200), planned.text
    seed = query.get("seed")
    plan = Model.load(folder).plan(json.loads(json.dumps(request_)), engine, seed=seed)
    assert plan.request == annotated.json()["request"] == planned.json()["request"]
    assert plan.blocks == planned.json()["blocks"]
