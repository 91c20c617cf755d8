"""`/plan` names the blocks that vLLM stores for models without a built-in family."""

import base64
import io
import json
import secrets
import socket
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from PIL import Image

from mmhash.kvindex.events import BlocksStored, parse_batch
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.live.engines import variables_of
from tests.live.environments import Environment
from tests.live.fork_server import Program
from tests.support import in_process
from tests.support.forked_helpers import forked_helpers
from tests.support.images import data_url, encode, frames_url, image_part

ROOT = Path(__file__).parents[2]
ENGINE = "vllm@0.32.0"
TYPES = (
    "cohere2_vision", "exaone4_5", "gemma4", "gemma4_unified", "glm_ocr", "hyperclovax_vision_v2",
    "lighton_ocr", "minicpmv4_7", "paddleocr_vl", "qwen3_5", "qwen3_5_moe", "qwen3_asr",
)  # fmt: skip

# The other types' tiny models cut videos and images into patches of two sizes, or were not tried.
TAKE_VIDEO = {"gemma4", "hyperclovax_vision_v2", "minicpmv4_7"}

# On a CPU without AMX, vLLM switches its prefix cache off for models with MLA.
if "amx_tile" in Path("/proc/cpuinfo").read_text():
    TYPES += ("kimi_k25",)


def _pixels(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng().integers(0, 256, (height, width, 3), np.uint8))


def _image(width: int, height: int) -> dict[str, Any]:
    return image_part(encode(_pixels(width, height)))


def _video(frames: int, width: int, height: int) -> dict[str, Any]:
    files = [encode(_pixels(width, height), "JPEG") for _ in range(frames)]
    return {"type": "video_url", "video_url": {"url": frames_url(files)}}


def _clip(samples: int) -> dict[str, Any]:
    noise = np.random.default_rng().integers(-3000, 3000, samples, np.int16)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 16_000, samples, "NONE", ""))
        file.writeframes(noise.tobytes())
    return {"type": "audio_url", "audio_url": {"url": data_url(buffer.getvalue(), "audio/wav")}}


def _text(length: int) -> dict[str, Any]:
    return {"type": "text", "text": secrets.token_hex(length)}


def _chats(kind: str) -> list[dict[str, Any]]:
    contents = [
        [_image(320, 240), _text(600)],
        [_text(300), _image(97, 211), _text(20), _image(640, 480), _text(500)],
        [_text(1500)],
    ]
    if kind in TAKE_VIDEO:
        contents.append([_text(200), _video(5, 160, 96), _text(300)])
    if kind == "qwen3_asr":
        contents = [
            [_text(300), _clip(50_001), _text(20)],
            [_clip(16_000), _text(200), _clip(4_000)],
        ]
    return [{"messages": [{"role": "user", "content": content}]} for content in contents]


class Planner:
    """A service that plans the requests of a type."""

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
    """The requests of a type with their hashes, and what the engine computed from them."""

    planner: Planner
    requests: list[dict[str, Any]]
    made: dict[str, Any]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ran]]:
    environment = Environment("vllm", ENGINE.partition("@")[2])
    environment.build_or_skip()
    folder = tmp_path_factory.mktemp("models")
    command = [environment.command("python"), "-m", "tests.live.vllm_models", str(folder), *TYPES]
    with ExitStack() as stack:
        stack.enter_context(forked_helpers())
        mine, its = socket.socketpair()
        with its, (folder / "log").open("w") as log:
            env = variables_of() | {"PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "ERROR"}
            files = {0: its.fileno(), 1: its.fileno(), 2: log.fileno()}
            Program(command, env=env, files=files)
        engine = stack.enter_context(mine.makefile("rw"))
        mine.close()
        assert engine.readline(), (folder / "log").read_text()[-2000:]

        def plan(kind: str) -> tuple[Planner, list[dict[str, Any]]]:
            """Start a service with the type's model, whose processor takes seconds to load."""
            app = create_app(Settings(models={kind: folder / kind}))
            planner = Planner(stack.enter_context(in_process.running(app)).client, kind)
            chats = _chats(kind)
            return planner, [planner.plan(chat, request="true")["request"] for chat in chats]

        # The engine runs a type's requests while the next types are planned.
        threads = stack.enter_context(ThreadPoolExecutor(2))
        planned = {kind: threads.submit(plan, kind) for kind in TYPES}
        ran = {}
        for kind, planning in planned.items():
            planner, requests = planning.result()
            engine.write(json.dumps(requests) + "\n")
            engine.flush()
            ran[kind] = Ran(planner, requests, json.loads(engine.readline()))
        yield ran


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
