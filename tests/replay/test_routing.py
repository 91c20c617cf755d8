"""examples/routing_gateway.py in front of two workers, each a process of its own."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import routing
from bench.radix_worker import BLOCK_SIZE, RadixCache
from bench.support.servers import running
from examples.stand_in_tokenizer import IMAGE_TOKENS

CHATS = list(routing.trace(chats=30))
TEXT = {"type": "text", "text": " ".join(map(str, range(3 * BLOCK_SIZE)))}


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with running("mmhash", "serve") as url:
        yield url


@pytest.fixture
def gateway(service: str) -> Iterator[httpx.Client]:
    with routing.two_workers() as workers:
        module = ("uvicorn", "examples.routing_gateway:app")
        with (
            running(*module, MMHASH=service, WORKERS=",".join(workers)) as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            yield client


def send(gateway: httpx.Client, *parts: dict[str, Any]) -> tuple[str, int]:
    """Return the worker that answers a chat, and the number of tokens that it had cached."""
    chat = {"messages": [{"role": "user", "content": parts}]}
    answer = gateway.post("/v1/chat/completions", json=chat).raise_for_status().json()
    usage = answer["usage"]["prompt_tokens_details"]
    return answer["system_fingerprint"], usage["cached_tokens"]


def images(chats: list[routing.Chat]) -> list[dict[str, Any]]:
    parts = [part for chat in chats for message in chat["messages"] for part in message["content"]]
    found = {str(part): part for part in parts if part["type"] == "image_url"}
    return list(found.values())


@pytest.mark.slow
def test_more_is_cached_than_in_turn(service: str) -> None:
    ours, peer = routing.by_prefix(service, CHATS), routing.in_turn(service, CHATS)
    assert ours.tokens == peer.tokens
    assert len(ours.computed) == len(peer.computed) == 2
    assert ours.cached_percent > 1.1 * peer.cached_percent
    assert max(ours.computed) < max(peer.computed)


def test_a_chat_goes_where_its_image_is_cached(gateway: httpx.Client) -> None:
    one, two, three = images(CHATS)[:3]
    has_one, cached = send(gateway, one, TEXT)
    assert cached == 0
    has_two, cached = send(gateway, two, TEXT)
    assert (has_two != has_one, cached) == (True, 0)  # no worker had it, and this one holds less
    for _ in range(2):
        worker, cached = send(gateway, one, {"type": "text", "text": "And?"})
        assert worker == has_one
        assert cached >= IMAGE_TOKENS - BLOCK_SIZE
        worker, cached = send(gateway, two, {"type": "text", "text": "Or?"})
        assert worker == has_two
        assert cached >= IMAGE_TOKENS - BLOCK_SIZE
    # As many placeholders, and the same words: but not the same prompt.
    assert send(gateway, three, TEXT)[1] == 0


@given(st.lists(st.text("ab", min_size=1, max_size=6), max_size=30), st.integers(1, 8))
def test_a_worker_s_cache_is_a_tree_of_bounded_size(prompts: list[str], capacity: int) -> None:
    cache = RadixCache(capacity)
    held: set[str] = set()
    for prompt in prompts:
        keys = [prompt[: at + 1] for at in range(len(prompt))]
        matched, stored, removed = cache.run(keys)
        assert set(keys[:matched]) <= held
        assert stored == keys[matched:]
        assert held.isdisjoint(stored)
        held = (held | set(stored)) - set(removed)
        assert len(held) <= capacity
        assert all(key[:-1] in held for key in held if len(key) > 1)
