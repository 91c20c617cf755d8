"""`mmhash serve` renders prompts as `vllm launch render` does, field by field.

`LIVE_RENDERS=1000` compares more requests.
"""

import base64
import io
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.live.engines import LIMITS, variables_of
from tests.live.environments import Environment
from tests.live.fork_server import Program
from tests.support.ports import free_port
from tests.support.service import Service, serving

RELEASES = ("0.32.0", "0.30.0", "0.28.0")
REQUESTS = int(os.environ.get("LIVE_RENDERS", "100"))
MAX_LEN = 2048
WORDS = [
    "the",
    "image",
    "shows",
    "a",
    "small",
    "red",
    "house",
    "near",
    "two",
    "trees",
    "and",
    "some",
    "water",
    "under",
    "clouds",
]
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at an image.",
        "parameters": {"type": "object", "properties": {"url": {"type": "string"}}},
    },
}


FORMS = ("chat",) * 5 + ("completions", "messages", "responses", "tokenize", "refused")
OLDER_FORMS = ("chat",) * 3 + ("completions", "tokenize", "refused")


class Requests:
    """Random requests, valid and not."""

    def __init__(self, seed: int, release: str = RELEASES[0]) -> None:
        self._rng = random.Random(seed)
        self._forms = FORMS if release == RELEASES[0] else OLDER_FORMS
        self._known: list[dict[str, Any]] = []

    def next(self) -> tuple[str, dict[str, Any]]:
        """Return a path and a body."""
        rng = self._rng
        kind = rng.choice(self._forms)
        if kind == "completions":
            prompts = [self.text(), [self.text(), self.text()], [5, 6, 7], [[5, 6], [7]]]
            body = {"prompt": rng.choice(prompts), **self.sampling()}
            return "/v1/completions/render", body | self.some({"logprobs": 2, "echo": True})
        if kind == "messages":
            return "/v1/messages/render", self.messages()
        if kind == "responses":
            return "/v1/responses/render", self.responses()
        if kind == "tokenize":
            whole = {"prompt": self.text()} if rng.random() < 0.5 else {"messages": self.chat()}
            return "/tokenize", whole | self.some({"return_token_strs": True, "model": "tiny"})
        path = "/v1/chat/completions/render"
        if kind == "refused":
            return path, {"messages": self.chat(), **rng.choice(REFUSED)}
        body = {"messages": self.chat(), "mm_payload": "none", **self.sampling()}
        body |= self.some({"tools": [TOOL], "top_logprobs": 2, "echo": True})
        if "tools" in body:
            body["tool_choice"] = "none"
        if "top_logprobs" in body:
            body["logprobs"] = True
        return path, body

    def some(self, members: dict[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in members.items() if self._rng.random() < 0.3}

    def text(self) -> str:
        return " ".join(self._rng.choices(WORDS, k=self._rng.randint(1, 40))) + "\u00e9\n"

    def image(self) -> dict[str, Any]:
        rng = self._rng
        if self._known and rng.random() < 0.3:
            return rng.choice(self._known)
        size = (rng.randint(20, 400), rng.randint(20, 400))
        kind, mode = rng.choice(
            [("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "L"), ("JPEG", "RGB"), ("WEBP", "RGB"), ("GIF", "P")]
        )  # fmt: skip
        image = Image.new("RGB", size, tuple(rng.randrange(256) for _ in range(3))).convert(mode)
        file = io.BytesIO()
        image.save(file, kind)
        url = f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
        part: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
        self._known.append(part)
        # vLLM takes an image's size from an earlier image with the same uuid.
        return part | self.some({"uuid": f"caller {rng.getrandbits(64)}"})

    def chat(self) -> list[dict[str, Any]]:
        rng = self._rng
        system = [{"role": "system", "content": self.text()}] if rng.random() < 0.3 else []
        turns: list[dict[str, Any]] = []
        for _ in range(rng.randint(0, 2)):
            turns += [
                {"role": "user", "content": self.text()},
                {"role": "assistant", "content": self.text()},
            ]
        parts: list[dict[str, Any]] = [{"type": "text", "text": self.text()}]
        parts += [self.image() for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]
        rng.shuffle(parts)
        return [*system, *turns, {"role": "user", "content": parts}]

    def messages(self) -> dict[str, Any]:
        rng = self._rng
        content: list[dict[str, Any]] = [{"type": "text", "text": self.text()}]
        if rng.random() < 0.5:
            head, _, data = self.image()["image_url"]["url"].partition(";base64,")
            source = {"type": "base64", "media_type": head[len("data:") :], "data": data}
            content.insert(0, {"type": "image", "source": source})
        body = {
            "model": "tiny",
            "max_tokens": rng.randint(1, 50),
            "mm_payload": "none",
            "messages": [{"role": "user", "content": content}],
        }
        optional = {
            "system": self.text(),
            "temperature": 0.5,
            "top_p": 0.5,
            "top_k": 4,
            "stop_sequences": ["x"],
            "stream": True,
        }
        return body | self.some(optional)

    def responses(self) -> dict[str, Any]:
        rng = self._rng
        items = [
            message | {"content": [self.input_part(part) for part in message["content"]]}
            if message["role"] == "user" and isinstance(message["content"], list)
            else message
            for message in self.chat()
        ]
        logprobs = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        body = {"input": rng.choice([items, self.text()]), "mm_payload": "none", **self.sampling()}
        body.pop("max_tokens", None)
        body.pop("stream_options", None)
        function = TOOL["function"] | {"type": "function"}
        optional = {
            "instructions": self.text(),
            "max_output_tokens": rng.choice([1, 50, 5000]),
            "tools": [function],
            "text": {"format": {"type": "text"}},
            "kv_transfer_params": {"a": 1},
            "reasoning": {"effort": "low"},
            "previous_response_id": rng.choice([None, None, "resp_1"]),
            "prompt": rng.choice([None, None, {"id": "1"}]),
        }
        return body | self.some(optional) | (logprobs if rng.random() < 0.3 else {})

    def input_part(self, part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] == "text":
            return part | {"type": "input_text"}
        return {"type": "input_image", "detail": "auto", "image_url": part["image_url"]["url"]}

    def sampling(self) -> dict[str, Any]:
        rng = self._rng
        members = {
            "model": "tiny",
            "temperature": rng.choice([0, 0.001, 0.7, 1, 2.0]),
            "top_p": rng.choice([1, 1.0, 0.3]),
            "top_k": rng.choice([0, 1, -1, 40]),
            "min_p": rng.choice([0.0, 0.1]),
            "presence_penalty": rng.choice([0, -1, 0.5]),
            "frequency_penalty": 0.25,
            "repetition_penalty": rng.choice([1, 1.1]),
            "max_tokens": rng.choice([1, 16, 50, 5000]),
            "min_tokens": rng.choice([0, 1]),
            "seed": rng.choice([-1, 0, 7, 1 << 40]),
            "stop": rng.choice(["\n", ["a", "bcd"], [], None]),
            "stop_token_ids": rng.choice([[5, 5, 6], []]),
            "bad_words": ["x", "x"],
            "logit_bias": {"5": 2, "6": -200},
            "ignore_eos": True,
            "include_stop_str_in_output": True,
            "skip_special_tokens": rng.choice([True, False]),
            "spaces_between_special_tokens": False,
            "allowed_token_ids": [1, 2, 3],
            "prompt_logprobs": rng.choice([0, 2]),
            "cache_salt": "salt",
            "priority": rng.choice([0, -5]),
            "request_id": "mine",
            "vllm_xargs": {"one": 1},
            "user": "someone",
            "watermarking": rng.choice([True, False]),
            "odd": {"member": 1},
        }
        chosen = self.some(members)
        if rng.random() < 0.3 and not chosen.get("prompt_logprobs"):
            chosen |= {"stream": True} | self.some({"stream_options": {"include_usage": True}})
        return chosen


REFUSED: tuple[dict[str, Any], ...] = (
    {"model": "other"},
    {"messages": "text"},
    {"messages": []},
    {"temperature": "hot"},
    {"seed": 1 << 70},
    {"use_beam_search": True},
    {"cache_salt": ""},
    {"messages": [{"role": "user", "content": "long " * MAX_LEN}]},
)


@pytest.fixture(
    scope="module",
    params=[RELEASES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in RELEASES[1:])],
)
def environment(request: pytest.FixtureRequest) -> Environment:
    found = Environment("vllm", request.param)
    found.build_or_skip()
    return found


@pytest.fixture(scope="module")
def renderer(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """vLLM's own render server."""
    port, log = free_port(), tmp_path_factory.mktemp("engine") / "render.log"
    model = str(environment.model("qwen2_vl"))
    command = [
        *(environment.command("vllm"), "launch", "render", model, *LIMITS),
        *("--port", str(port), "--host", "127.0.0.1", "--served-model-name", "tiny"),
        *(["--trust-request-mm-kwargs"] if environment.release == RELEASES[0] else []),
    ]
    with log.open("w") as output:
        files = {1: output.fileno(), 2: output.fileno()}
        process = Program(command, env=variables_of(), files=files)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            wait_until_healthy(client, process, log)
            yield client
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # 0.28 ignores SIGTERM
        process.wait(30)


@pytest.fixture(scope="module")
def ours(environment: Environment) -> Iterator[Service]:
    source = {"path": str(environment.model("qwen2_vl")), "max_model_len": MAX_LEN}
    settings = {
        "models": {"tiny": source},
        "render_version": environment.release,
    }
    with serving(settings=settings) as service:
        yield service


def wait_until_healthy(client: httpx.Client, process: Program, log: Path) -> None:
    until = time.monotonic() + 900
    while process.poll() is None and time.monotonic() < until:
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise RuntimeError(f"the render server did not start: {log.read_text()[-4000:]}")


def test_answers_are_those_of_vllm(
    environment: Environment, renderer: httpx.Client, ours: Service
) -> None:
    requests = Requests(37, environment.release)
    statuses = set()
    with ours.new_client() as client:
        for _ in range(REQUESTS):
            path, body = requests.next()
            theirs, own = renderer.post(path, json=body), client.post(path, json=body)
            assert own.status_code == theirs.status_code, (path, body, theirs.text, own.text)
            assert settled(own.json()) == settled(theirs.json()), (path, body)
            statuses.add((path, own.status_code))
    assert len(statuses) >= 5


def settled(answer: Any) -> Any:
    """Return an answer without ids and tensors. Of an error, leave out the wording."""
    if isinstance(answer, list):
        return [settled(one) for one in answer]
    if "error" in answer:
        return {"code": answer["error"]["code"], "members": set(answer["error"])}
    if "request_id" not in answer:
        return answer
    if features := answer["features"]:
        # Releases before 0.32 return tensors, whatever the request asks for.
        features |= {name: None for name in ("kwargs_data", "mm_metadata") if name in features}
    name = answer["request_id"]
    shown = name if name == "mine" else re.split("[-_]", name)[0]
    return answer | {"request_id": shown}


def test_tensors_are_refused_by_name(ours: Service) -> None:
    content = [Requests(1).image()]
    body = {"messages": [{"role": "user", "content": content}], "mm_payload": "tensors"}
    with ours.new_client() as client:
        answer = client.post("/v1/chat/completions/render", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "mm_payload"
