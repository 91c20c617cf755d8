"""Agents' clients get the same answers through the gateway, which plans each request."""

import base64
import io
from collections.abc import Iterator
from typing import Any, NamedTuple

import anthropic
import httpx
import openai
import pytest
from PIL import Image

from tests.live.engines import Engine
from tests.support.gateway import gateway_before

RELEASES = ("vllm@0.32.0", "sglang@0.5.23")
WITHOUT_GUARD = True


class Servers(NamedTuple):
    """The URLs of an engine, and of the gateway in front of it."""

    engine: str
    gateway: str

    def in_turn(self) -> tuple[str, str, str]:
        """Return the engine twice: its first answer, which fills the cache, is rounded differently."""
        return self.engine, self.engine, self.gateway


@pytest.fixture(scope="module")
def servers(engine: Engine) -> Iterator[Servers]:
    settings = {
        "models": {"tiny": str(engine.environment.model("qwen2_vl"))},
        "gateway.health_timeout_s": "30",
    }
    with gateway_before([engine.url], settings=settings) as gateway:
        yield Servers(engine.url, gateway.url)


def picture(color: str) -> str:
    file = io.BytesIO()
    Image.new("RGB", (84, 84), color).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
_RED = {"type": "input_image", "image_url": f"data:image/png;base64,{picture('red')}"}
_CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"city": "Bern"}'}
RESPONSES: dict[str, Any] = {
    "model": "tiny",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Which?"}, _RED]},
        _CALL,
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "sunny"}, {**_RED, "detail": "auto"}],
        },
    ],
    "tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}],
    "max_output_tokens": 8,
    "temperature": 0,
}

_BLUE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": picture("blue")},
}
_USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {"city": "Bern"}}
MESSAGES: dict[str, Any] = {
    "model": "tiny",
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [_BLUE, {"type": "text", "text": "Which?"}]},
        {"role": "assistant", "content": [_USE]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [_BLUE]}],
        },
    ],
    "tools": [{"name": "look", "description": "Look.", "input_schema": SCHEMA}],
}


def planned_tokens(servers: Servers, path: str, body: dict[str, Any]) -> int:
    """Return how many tokens the gateway plans for a request."""
    answer = httpx.post(f"{servers.gateway}/route", json=body, params={"path": path}, timeout=60)
    assert answer.json()["plan"] is not None, answer.text[:500]
    return int(answer.json()["plan"]["tokens"])


# SGLang calls an answer incomplete if it reached its limit.
_ENDS = {"response.completed", "response.incomplete"}


@pytest.mark.parametrize("stream", [False, True])
def test_openai_responses(servers: Servers, stream: bool) -> None:
    answers = []
    for url in servers.in_turn():
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            if stream:
                with client.responses.create(**RESPONSES, stream=True) as events:
                    (answer,) = (one.response for one in events if one.type in _ENDS)
            else:
                answer = client.responses.create(**RESPONSES)
        answers.append((answer.output_text, answer.usage.input_tokens))
    assert answers[1] == answers[2]
    assert answers[1][1] == planned_tokens(servers, "/v1/responses", RESPONSES)


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_messages(servers: Servers, stream: bool) -> None:
    body = {**MESSAGES, "max_tokens": 8}
    answers, counts = [], []
    for url in servers.in_turn():
        with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
            if stream:
                with client.messages.stream(**body, extra_body={"temperature": 0}) as events:
                    message = events.get_final_message()
            else:
                message = client.messages.create(**body, extra_body={"temperature": 0})
            usage = message.usage
            cached = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
            count = usage.input_tokens + sum(filter(None, cached))
            answers.append([block.model_dump(exclude={"id"}) for block in message.content])
            counts.append((count, client.messages.count_tokens(**MESSAGES).input_tokens))
    assert answers[1] == answers[2]
    assert counts[1] == counts[2]
    assert counts[1][0] == planned_tokens(servers, "/v1/messages", body)
