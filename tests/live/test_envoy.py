"""Two vLLM servers behind a real Envoy with two pickers: answers and cached tokens."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import openai
import pytest

from tests.live.engines import Engine, running
from tests.live.environments import Environment
from tests.live.test_gateway import CALLS, SETTLED, ask, picture
from tests.support.envoy import Configuration, envoy_with, picker_for
from tests.support.gateway import gateway_before
from tests.support.waiting import wait_until

# This starts two engines. Run it with `pytest -m live tests/live/test_envoy.py`.
pytestmark = pytest.mark.slow

OPTIONS: dict[str, Any] = {"api_key": "none", "max_retries": 0, "timeout": 120}


class Fleet(NamedTuple):
    """Two engines; clients of the first one, of an Envoy, and of a gateway in front of both."""

    engines: list[Engine]
    bare: openai.OpenAI
    envoy: openai.OpenAI
    gateway: openai.OpenAI


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    environment = Environment("vllm", "0.32.0")
    environment.build_or_skip()
    folder = tmp_path_factory.mktemp("envoy")
    with ExitStack() as stack:
        engines = [
            stack.enter_context(running(environment, "qwen2_vl", log=folder / f"{number}.log"))
            for number in range(2)
        ]
        urls = [one.url for one in engines]
        settings = {
            "models": {"tiny": str(environment.model("qwen2_vl"))},
            "gateway.health_interval_s": "1",
            "gateway.health_timeout_s": "30",
        }
        gateway = stack.enter_context(gateway_before(urls, settings=settings))
        pickers = [stack.enter_context(picker_for(urls, settings=settings)) for _ in range(2)]
        endpoints = [one.removeprefix("http://") for one in urls]
        configuration = Configuration(endpoints, *(one.endpoint for one in pickers))
        configuration.ext_proc["message_timeout"] = "60s"  # engines may hold all cores
        configuration.ext_proc["failure_mode_allow"] = False
        proxied = stack.enter_context(envoy_with(configuration, folder))
        bases = (urls[0], str(proxied.base_url).rstrip("/"), gateway.url)
        clients = [
            stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", **OPTIONS)) for url in bases
        ]
        states = [picker.http for picker in pickers]
        states.append(stack.enter_context(gateway.new_client()))
        for one in states:
            wait_until(lambda one=one: _are_connected(one))
        yield Fleet(engines, *clients)


def _are_connected(client: Any) -> bool:
    states = client.get("/workers").json()["workers"]
    return all(one["healthy"] and one["connected"] for one in states)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_the_same_answer(fleet: Fleet, name: str) -> None:
    assert ask(CALLS[name], fleet.envoy) == ask(CALLS[name], fleet.bare)


def test_as_many_tokens_are_cached_as_by_the_gateway(fleet: Fleet) -> None:
    """In conversations with images, each turn waits for the answer to the previous one."""
    cached = {}
    for name, client in (("envoy", fleet.envoy), ("gateway", fleet.gateway)):
        cached[name] = [
            share for number in range(8) for share in _converse(client, f"{name} {number}")
        ]
    means = {name: sum(shares) / len(shares) for name, shares in cached.items()}
    print(f"cached of later turns: {means}")
    assert abs(means["envoy"] - means["gateway"]) < 0.02
    assert min(means.values()) > 0.8


def _converse(client: openai.OpenAI, topic: str) -> Iterator[float]:
    """Yield, for each later turn, the cached share of what it has in common with the turn before."""
    color = f"#{abs(hash(topic)) % (1 << 24):06x}"
    text = f"About {topic}. " * 20
    messages: list[Any] = [
        {"role": "user", "content": [picture(color), {"type": "text", "text": text}]}
    ]
    before = 0
    for turn in range(3):
        answer = client.chat.completions.create(messages=messages, **SETTLED)
        usage = answer.usage
        assert usage is not None
        details = usage.prompt_tokens_details
        if before:
            cacheable = before // 32 * 32
            yield min(1.0, ((details and details.cached_tokens) or 0) / cacheable)
        before = usage.prompt_tokens
        messages = [
            *messages,
            {"role": "assistant", "content": answer.choices[0].message.content or "yes"},
            {"role": "user", "content": f"And {topic} in turn {turn}? " * 8},
        ]
