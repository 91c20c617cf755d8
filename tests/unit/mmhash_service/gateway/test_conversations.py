"""The estimate of the conversations of a fleet."""

import pytest

from mmhash_service.gateway.conversations import Conversations

CACHES = 16_000  # of two workers


def begin(conversations: Conversations, url: str, *, turns: int = 1) -> None:
    """Add a conversation of one new prompt of 100 tokens, which grows by 100 with each turn."""
    for turn in range(turns):
        conversations.add(url, 100, 100 * (turn + 1), CACHES)


def crowding(conversations: Conversations, *urls: str) -> dict[str, float]:
    return conversations.crowding(dict.fromkeys(urls, 0.0), CACHES)


def test_without_requests_nothing_is_known() -> None:
    conversations = Conversations()
    assert conversations.reused_tokens == 0
    assert crowding(conversations, "a", "b") == {"a": 0, "b": 0}
    assert crowding(conversations) == {}


def test_a_new_prompt_is_a_conversation_and_a_cached_one_none() -> None:
    conversations = Conversations()
    for _ in range(4):
        conversations.add("a", 2100, 2100, 10**9)
        conversations.add("b", 0, 2100, 10**9)
    assert conversations.reused_tokens == pytest.approx(2100, rel=1e-3)
    # Four of 2100 tokens at a cache of 8000; the mean is two.
    assert crowding(conversations, "a", "b") == {"a": 0.5, "b": 0}


def test_conversations_count_with_the_tokens_of_those_before() -> None:
    """Twenty that have just begun will be larger than two that have grown."""
    conversations = Conversations()
    for _ in range(2):
        begin(conversations, "a", turns=20)
    grown = crowding(conversations, "a", "b")
    for _ in range(20):
        begin(conversations, "b")
    begun = crowding(conversations, "a", "b")
    assert grown["a"] > grown["b"] == 0
    assert begun["b"] > begun["a"] == 0


def test_conversations_fade_as_the_caches_get_others() -> None:
    conversations = Conversations()
    for _ in range(40):
        conversations.add("a", 1000, 1000, CACHES)
    crowded = crowding(conversations, "a", "b")["a"]
    for _ in range(40):
        conversations.add("b", 1000, 1000, CACHES)
    # Never more than about what its cache holds, above the mean.
    assert 0.75 <= crowded <= 1
    assert crowding(conversations, "a", "b")["b"] == pytest.approx(crowded, abs=0.2)


def test_a_difference_of_less_than_a_sixteenth_of_the_cache_is_none() -> None:
    conversations = Conversations()
    conversations.add("a", 900, 900, 10**9)
    assert crowding(conversations, "a", "b") == {"a": 0, "b": 0}
    conversations.add("a", 200, 200, 10**9)
    assert crowding(conversations, "a", "b") == {"a": 0.0625, "b": 0}


def test_workers_that_have_left_do_not_count() -> None:
    conversations = Conversations()
    for _ in range(8):
        conversations.add("a", 1100, 1100, 10**9)
    assert crowding(conversations, "b", "c") == {"b": 0, "c": 0}
    for _ in range(8):
        conversations.add("b", 1100, 1100, 10**9)
    assert crowding(conversations, "b", "c") == {"b": 0.5, "c": 0}


def test_requests_that_run_count_like_the_conversations_before() -> None:
    conversations = Conversations()
    assert conversations.crowding({"a": 8.0, "b": 0.0}, CACHES) == {"a": 0, "b": 0}
    begin(conversations, "a", turns=40)
    begun = conversations.crowding({"a": 0.0, "b": 0.0}, CACHES)
    running = conversations.crowding({"a": 0.0, "b": 8.0}, CACHES)
    assert running["a"] < begun["a"]
    assert conversations.crowding({"a": 0.0, "b": 0.0}, CACHES) == begun
