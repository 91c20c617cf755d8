"""The OpenAI client gets the same answers through the gateway as from the engine."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import openai
import pytest
from PIL import Image

from tests.live import results
from tests.live.engines import Engine
from tests.support.gateway import gateway_before
from tests.support.images import encode, image_part
from tests.support.service import Service

# `make live` must end within minutes. `pytest -m live` runs these too.
pytestmark = pytest.mark.slow

RELEASES = ("vllm@0.32.0", "sglang@0.5.23")
WITHOUT_GUARD = True


class Both(NamedTuple):
    """Clients of an engine, and of the gateway in front of it."""

    engine: Engine
    gateway: Service
    bare: openai.OpenAI
    proxied: openai.OpenAI


@pytest.fixture(scope="module")
def both(engine: Engine) -> Iterator[Both]:
    settings = {
        "models": {"tiny": str(engine.environment.model("qwen2_vl"))},
        "gateway.health_interval_s": "1",
        "gateway.health_timeout_s": "30",
    }
    with gateway_before([engine.url], settings=settings) as gateway:
        options: dict[str, Any] = {"api_key": "none", "max_retries": 0, "timeout": 120}
        with (
            openai.OpenAI(base_url=f"{engine.url}/v1", **options) as bare,
            openai.OpenAI(base_url=f"{gateway.url}/v1", **options) as proxied,
        ):
            yield Both(engine, gateway, bare, proxied)


def picture(color: str) -> dict[str, Any]:
    return image_part(encode(Image.new("RGB", (84, 84), color)))


SETTLED: dict[str, Any] = {"model": "tiny", "max_tokens": 6, "temperature": 0, "seed": 1}
TEXT = [{"role": "user", "content": "Say something about the weather of today."}]
IMAGE = [{"role": "user", "content": [picture("red"), {"type": "text", "text": "Describe it."}]}]
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"url": {"type": "string"}}},
    },
}

Call = Callable[[openai.OpenAI], Any]


def chat(messages: Any, **options: Any) -> Call:
    return lambda client: client.chat.completions.create(messages=messages, **SETTLED | options)


CALLS: dict[str, Call] = {
    "chat": chat(TEXT),
    "chat with an image": chat(IMAGE),
    "stream": chat(TEXT, stream=True, stream_options={"include_usage": True}),
    "stream with an image": chat(IMAGE, stream=True),
    "tools": chat(TEXT, tools=[TOOL], tool_choice="none"),
    "completion": lambda client: client.completions.create(prompt="Once upon", **SETTLED),
    "models": lambda client: client.models.list(),
    "error: unknown model": chat(TEXT, model="other"),
    "error: an unknown path": lambda client: client.get("/nothing", cast_to=object),
}

# Members that differ in each response, and timings.
_VOLATILE = {
    "id",
    "created",
    "metadata",
    "prompt_tokens_details",
    "request_id",
    "system_fingerprint",
}


def settled(value: Any) -> Any:
    """Return a value without the members that differ in each response."""
    if isinstance(value, dict):
        return {name: settled(one) for name, one in value.items() if name not in _VOLATILE}
    return [settled(one) for one in value] if isinstance(value, list) else value


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Join a stream into one answer: how many tokens a chunk has depends on timing."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return {
        "content": "".join(one["delta"].get("content") or "" for one in choices),
        "ends": [one["finish_reason"] for one in choices if one["finish_reason"]],
        "usage": [settled(chunk["usage"]) for chunk in chunks if chunk.get("usage")],
        "models": sorted({chunk["model"] for chunk in chunks}),
    }


def ask(call: Call, client: openai.OpenAI) -> Any:
    """Return the answer or the error of a call, as plain values."""
    try:
        answer = call(client)
    except openai.APIStatusError as error:
        return {"status": error.status_code, "kind": type(error).__name__, "body": error.body}
    if isinstance(answer, openai.Stream):
        return joined([chunk.model_dump(exclude_unset=True, warnings=False) for chunk in answer])
    return settled(answer.model_dump(exclude_unset=True, warnings=False))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_the_same_answer(both: Both, name: str) -> None:
    expected = ask(CALLS[name], both.bare)
    answer = ask(CALLS[name], both.proxied)
    kind = f"error {expected['status']}" if "status" in expected else "same"
    cell = kind if answer == expected else "DIFFERS"
    results.record("gateway", name, both.engine.spelling, cell)
    assert answer == expected


def test_a_worker_says_itself_what_it_is(both: Both) -> None:
    with both.gateway.new_client() as client:
        (state,) = client.get("/workers").json()["workers"]
    assert state["engine"] == both.engine.spelling
    assert state["lacking"] == {}


def test_the_plan_is_what_the_engine_has_cached(both: Both) -> None:
    """`/route` reports as many matched tokens as the engine then reports as cached."""
    text = "A prompt of several blocks. " * 30
    contents: list[tuple[str, Any]] = [("tiny", text)]
    if both.engine.name == "vllm":  # plans for SGLang end before an image
        contents.append(("tiny", [picture("blue"), {"type": "text", "text": "Look. " * 90}]))
    contents += [(adapter, f"For {adapter}: {text}") for adapter in both.engine.loras]
    for model, content in contents:
        messages = [{"role": "user", "content": content}]
        request = SETTLED | {"model": model, "messages": messages}
        with both.gateway.new_client() as client:
            first = client.post("/v1/chat/completions", json=request).raise_for_status().json()
            # The engine caches the whole blocks before the last token of the prompt.
            size = both.engine.block_size
            cacheable = (first["usage"]["prompt_tokens"] - 1) // size * size
            until = time.monotonic() + 60
            while True:  # the gateway reads the engine's events
                routed = client.post("/route", json=request).json()
                (worker,) = routed["workers"]
                if worker["matched_tokens"] >= cacheable or time.monotonic() > until:
                    break
                time.sleep(0.1)
            state = client.get("/workers").json()["workers"][0]
            answer = client.post("/v1/chat/completions", json=request).json()
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert state["healthy"], state
        assert state["connected"], state
        assert state["blocks"] > 0, state
        assert routed["plan"] is not None
        assert 0 < cached <= worker["matched_tokens"]
        assert worker["matched_tokens"] - cached <= both.engine.block_size
