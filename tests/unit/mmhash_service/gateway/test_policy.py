"""How the policies rank workers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmhash_service.gateway.policy import Candidate, Conversations, Policy, rank

PROMPT = 1000
POLICIES: list[Policy] = ["longest-prefix", "least-load", "round-robin", "consistent-hash"]


def urls(policy: Policy, *candidates: Candidate, key: bytes = b"") -> str:
    """Return the names of the candidates in their order."""
    ranked = rank(policy, candidates, prompt_tokens=PROMPT, first_key=key)
    return "".join(one.url for one in ranked)


def best(*candidates: Candidate, prompt: int, policy: Policy = "longest-prefix") -> str:
    """Return the best worker for a prompt of so many tokens."""
    return rank(policy, candidates, prompt_tokens=prompt)[0].url


def test_a_longer_prefix_is_better() -> None:
    assert urls("longest-prefix", Candidate("a", 16, 0, 1), Candidate("b", 32, 0, 2)) == "ba"


@pytest.mark.parametrize(("load", "chosen"), [(599, "a"), (601, "b")])
def test_a_prompt_waits_if_that_is_shorter_than_to_compute_it(load: float, chosen: str) -> None:
    assert best(Candidate("a", 600, load, 1), Candidate("b", 0, 0, 2), prompt=620) == chosen


def test_requests_that_wait_are_delayed_by_what_is_computed() -> None:
    """The worker without the prefix is faster for this prompt, and makes three others later."""
    workers = [Candidate("a", 600, 700, 1, waiting=2), Candidate("b", 0, 0, 2)]
    assert best(*workers, prompt=1000) == "a"
    workers[0].waiting = 0
    assert best(*workers, prompt=1000) == "b"


def test_requests_on_an_unhealthy_worker_delay_no_others() -> None:
    workers = [Candidate("a", 600, 700, 1), Candidate("b", 0, 0, 2)]
    dead = Candidate("c", 0, 0, 0, is_healthy=False, waiting=100)
    assert best(*workers, dead, prompt=1000) == "b"


@given(st.lists(st.integers(0, 50_000), min_size=2, max_size=5), st.integers(1, 100_000))
def test_without_a_match_the_order_is_that_of_the_least_load(loads: list[int], prompt: int) -> None:
    workers = [Candidate(str(turn), 0, load, turn) for turn, load in enumerate(loads)]
    assert best(*workers, prompt=prompt) == best(*workers, prompt=prompt, policy="least-load")


@given(st.lists(st.integers(0, 50_000), min_size=2, max_size=5), st.integers(1, 5_000))
def test_a_prefix_that_every_worker_has_changes_nothing(loads: list[int], matched: int) -> None:
    workers = [Candidate(str(turn), matched, load, turn) for turn, load in enumerate(loads)]
    assert best(*workers, prompt=5_000) == best(*workers, prompt=5_000, policy="least-load")


def test_a_prefix_that_all_prompts_have_keeps_no_worker_idle() -> None:
    candidates = Candidate("a", 900, 20_000, 1), Candidate("b", 0, 0, 2)
    assert urls("longest-prefix", *candidates) == "ba"


def test_the_score_is_the_formula_of_the_page() -> None:
    workers = [
        Candidate("a", 96, 400, 0, expected_tokens=16, waiting=3, crowding=0.25),
        Candidate("b", 0, 1200, 0),
    ]
    ranked = rank("longest-prefix", workers, prompt_tokens=200, conversation_reuse=1000)
    assert [(one.url, one.score) for one in ranked] == [
        ("a", -(400 + (1 + 3 / 2) * 88 + 88 / 200 * 1000 * 0.25)),
        ("b", -(1200 + (1 + 3 / 2) * 200)),
    ]


def conversation(crowding: float, *, prompt: int) -> str:
    """Return the better of two workers; the first one has a system prompt of 100 tokens."""
    workers = [Candidate("a", 100, 0, 0, crowding=crowding), Candidate("b", 0, 0, 0)]
    ranked = rank("longest-prefix", workers, prompt_tokens=prompt, conversation_reuse=2 * prompt)
    return ranked[0].url


def test_a_new_conversation_leaves_a_crowded_worker() -> None:
    assert conversation(0, prompt=1000) == "a"
    assert conversation(0.25, prompt=1000) == "b"


def test_a_mostly_cached_conversation_stays_on_its_worker() -> None:
    assert conversation(0.5, prompt=120) == "a"


def test_expected_tokens_count_like_matched_ones() -> None:
    candidates = Candidate("a", 16, 0, 1), Candidate("b", 0, 0, 2, expected_tokens=32)
    assert urls("longest-prefix", *candidates) == "ba"


def home(key: bytes, **loads: float) -> str:
    """Return the best of workers that have nothing of a prompt whose new content has this key."""
    workers = [Candidate(name, 0, load, 0) for name, load in loads.items()]
    ranked = rank("longest-prefix", workers, prompt_tokens=PROMPT, first_key=key)
    return ranked[0].url


KEYS = [b"%d" % number for number in range(200)]


def test_new_content_has_one_home_unless_its_load_is_higher() -> None:
    assert {home(key, a=0, b=0) for key in KEYS} == {"a", "b"}
    for key in KEYS:
        assert home(key, a=5000, b=5000) == home(key, a=0, b=0)
        assert home(key, a=5000, b=5001) == "a"


def test_the_home_of_new_content_is_among_the_longest_matches() -> None:
    workers = [Candidate(name, 16 * (name in "bc"), 0, 0) for name in "abcd"]
    first = {
        rank("longest-prefix", workers, prompt_tokens=PROMPT, first_key=b"%d" % number)[0].url
        for number in range(100)
    }
    assert first == {"b", "c"}


def test_without_an_image_the_next_block_has_a_home() -> None:
    first = {
        rank("longest-prefix", [Candidate(name, 0, 0, 0, next_block=block) for name in "ab"])[0].url
        for block in range(20)
    }
    assert first == {"a", "b"}


def test_equal_workers_take_turns() -> None:
    for policy in ("longest-prefix", "least-load", "round-robin"):
        assert urls(policy, Candidate("a", 0, 0, 2), Candidate("b", 0, 0, 1)) == "ba"


def test_round_robin_ignores_cache_and_load() -> None:
    assert urls("round-robin", Candidate("a", 99, 0, 2), Candidate("b", 0, 99, 1)) == "ba"


def test_least_load_ignores_the_cache() -> None:
    assert urls("least-load", Candidate("a", 99, 2, 0), Candidate("b", 0, 1, 1)) == "ba"


def test_consistent_hashing_moves_only_the_keys_of_a_worker_that_leaves() -> None:
    workers = [Candidate(name, 0, 0, 0) for name in "abcdefgh"]
    keys = [b"%d" % number for number in range(400)]
    first = {key: urls("consistent-hash", *workers, key=key)[0] for key in keys}
    assert set(first.values()) == set("abcdefgh")
    without = {key: urls("consistent-hash", *workers[1:], key=key)[0] for key in keys}
    assert all(without[key] == name for key, name in first.items() if name != "a")


def test_a_request_without_an_image_goes_by_load() -> None:
    assert urls("consistent-hash", Candidate("a", 0, 2, 0), Candidate("b", 0, 1, 1)) == "ba"


candidates = st.lists(
    st.builds(
        Candidate,
        st.sampled_from("abcdef"),
        st.integers(0, 10_000),
        st.floats(0, 1e6),
        st.integers(0, 99),
        st.booleans(),
    ),
    max_size=6,
    unique_by=lambda one: one.url,
)


@given(candidates, st.sampled_from(POLICIES), st.binary(max_size=4))
def test_every_worker_is_ranked_and_unhealthy_ones_come_last(
    workers: list[Candidate], policy: Policy, key: bytes
) -> None:
    ranked = rank(policy, workers, first_key=key)
    assert sorted(one.url for one in ranked) == sorted(one.url for one in workers)
    is_healthy = {one.url: one.is_healthy for one in workers}
    health = [is_healthy[one.url] for one in ranked]
    assert health == sorted(health, reverse=True)


CACHES = 16_000  # of two workers


def begin(conversations: Conversations, url: str, *, turns: int = 1) -> None:
    """Add a conversation of one new prompt of 100 tokens, which grows by 100 with each turn."""
    for turn in range(turns):
        conversations.add(url, 100, 100 * (turn + 1), CACHES)


def crowding(conversations: Conversations, *urls: str) -> dict[str, float]:
    return conversations.crowding(dict.fromkeys(urls, 0.0), CACHES)


def test_conversations_are_unknown_before_the_first_request() -> None:
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


def test_a_difference_below_a_sixteenth_of_the_cache_is_ignored() -> None:
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
