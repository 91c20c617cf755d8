"""Models without a built-in family in vLLM's engine: `/plan` names the blocks that it stores."""

import base64
import io
import json
import secrets
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

import httpx
import numpy as np
import pytest
from PIL import Image

from mmhash.kvindex.events import BlocksStored, parse_batch
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.live.engines import variables_of
from tests.live.environments import Environment
from tests.support import in_process

ROOT = Path(__file__).parents[2]
ENGINE = "vllm@0.32.0"
TYPES = (
    "cohere2_vision", "exaone4_5", "gemma4", "gemma4_unified", "glm_ocr", "hyperclovax_vision_v2",
    "kimi_k25", "lighton_ocr", "minicpmv4_7", "paddleocr_vl", "qwen3_5", "qwen3_5_moe",
)  # fmt: skip


def _image(width: int, height: int) -> dict[str, Any]:
    pixels = np.random.default_rng().integers(0, 256, (height, width, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def _chat(*parts: tuple[int, int] | int) -> dict[str, Any]:
    """Return a chat of images and of texts with that many random bytes."""
    content = [
        {"type": "text", "text": secrets.token_hex(part)}
        if isinstance(part, int)
        else _image(*part)
        for part in parts
    ]
    return {"messages": [{"role": "user", "content": content}]}


class Planner:
    """The service, asked for the plans of a type's requests."""

    def __init__(self, client: httpx.Client, kind: str) -> None:
        self._client, self._kind = client, kind

    def plan(self, chat: dict[str, Any], **query: Any) -> dict[str, Any]:
        query |= {"model": self._kind, "engine": ENGINE}
        answer = self._client.post("/plan", json=chat, params=query)
        assert answer.status_code == 200, answer.text
        planned: dict[str, Any] = answer.json()
        return planned


def _stored(batches: list[str]) -> list[BlocksStored]:
    events = [one for batch in batches for one in parse_batch(base64.b64decode(batch)).events]
    return [one for one in events if isinstance(one, BlocksStored)]


class Ran(NamedTuple):
    """The requests of a type with their hashes, and what the engine made of them."""

    planner: Planner
    requests: list[dict[str, Any]]
    made: dict[str, Any]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ran]]:
    environment = Environment("vllm", ENGINE.partition("@")[2])
    environment.build_or_skip()
    folder = tmp_path_factory.mktemp("models")
    command = [environment.command("python"), "-W", "ignore", "-m", "tests.live.vllm_models"]
    sent: dict[str, list[dict[str, Any]]] = {}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [*command, str(folder), *TYPES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            env=variables_of() | {"PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "ERROR"},
            text=True,
        ) as process,
        ThreadPoolExecutor(1) as threads,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline(), (folder / "log").read_text()[-2000:]
        settings = Settings(models={kind: folder / kind for kind in TYPES})
        with in_process.running(create_app(settings)) as server:
            planners = {kind: Planner(server.client, kind) for kind in TYPES}

            def send(to: IO[str]) -> None:
                """Plan a type's requests while the engine runs those before."""
                for kind, planner in planners.items():
                    chats = (
                        _chat((320, 240), 600),
                        _chat(300, (97, 211), 20, (640, 480), 500),
                        _chat(1500),
                    )
                    sent[kind] = [planner.plan(one, request="true")["request"] for one in chats]
                    to.write(json.dumps(sent[kind]) + "\n")
                    to.flush()

            sending = threads.submit(send, process.stdin)
            made = {one["type"]: one for one in map(json.loads, process.stdout)}
            sending.result()
            yield {kind: Ran(planners[kind], sent[kind], made[kind]) for kind in TYPES}


@pytest.mark.parametrize("kind", TYPES)
def test_its_blocks_are_named(ran: dict[str, Ran], kind: str) -> None:
    planner, requests, made = ran[kind]
    assert "error" not in made, made["error"]
    for request, answer in zip(requests, made["answers"], strict=True):
        stored = _stored(answer["batches"])
        (block_size,) = {one.block_size for one in stored}
        plan = planner.plan(request, block_size=block_size)
        assert plan["token_ids"] == answer["ids"]
        assert {name for one in stored for name in one.ids} == set(plan["event_ids"])
