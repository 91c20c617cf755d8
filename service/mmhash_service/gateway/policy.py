"""The order in which workers are tried for a request: pure functions of what is known of them.

Longest prefix, in tokens:

    score = worth - cost of a token * queue - new_part * conversation_reuse * crowding
    worth = reused * min(1, reused / (SMALL_PART * prompt_tokens))
    reused = matched_tokens + expected_tokens
    queue = QUIET_LOAD * load / (least load + QUIET_LOAD)
    cost of a token = min(1, LOAD_WEIGHT * prompt_tokens / QUIET_LOAD)

`matched_tokens` are those that the worker holds, `expected_tokens` those after them that it
computes for requests that run (expected.py), or was sent under names that its events do not show
(unnamed.py). A small part of the prompt counts less: the block that a chat template or a system
prompt fills is no reason to wait, because each worker computes it once.

`load` is the number of tokens that the worker still has to compute for others (worker.py). It
counts relative to the least load: when all workers have queues, a request that leaves its cache
saves no time, because the fleet computes more; when one is idle, a prefix that all prompts have
must not keep it so. A token of a queue never costs more than one of the prompt: to wait for it
takes no longer than to compute that.

`crowding` is the part of its cache that the conversations which began there lately fill above the
mean of the fleet (conversations.py). Such a worker evicts what they still need: a new one goes
elsewhere, even if this worker has its system prompt. What is at stake is `conversation_reuse`, the
tokens that a conversation reuses, on average; none if no prompt continues another. `new_part` is
the part of the prompt that the worker has to compute: 1 for a new conversation, and little for the
next turn of one that the worker has.

If several workers have equally much of a prompt, or none of it, and equal loads, what is new in it
belongs to one of them by rendezvous hashing: other gateways send the same content there too.

The controls of a comparison: round robin, least load, and consistent hashing (rendezvous: a worker
that joins or leaves moves only its own share) on the key of the first image.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from blake3 import blake3

Policy = Literal["longest-prefix", "least-load", "round-robin", "consistent-hash"]


# A load at which a worker still counts as idle: two median prompts with an image.
QUIET_LOAD = 1200

# The part of a prompt that is computed again rather than sent to a worker with twice the load.
LOAD_WEIGHT = 0.1

# The part of a prompt below which a prefix counts less than its tokens.
SMALL_PART = 0.25


class Candidate(NamedTuple):
    """A worker, as a policy sees it."""

    url: str
    matched_tokens: int
    load: float
    turn: int
    """The number of the decision that chose it last: workers that are equal take turns."""
    is_healthy: bool = True
    expected_tokens: int = 0
    crowding: float = 0.0
    """The part of its cache that recent conversations fill above the mean of the fleet."""

    @property
    def reused_tokens(self) -> int:
        """The tokens of the prompt that it will not have to compute."""
        return self.matched_tokens + self.expected_tokens

    def new_part(self, prompt_tokens: int) -> float:
        """Return the part of the prompt that it will have to compute."""
        return max(0.0, 1 - self.reused_tokens / max(1, prompt_tokens))


class Ranked(NamedTuple):
    """A worker with its score; a higher one is better."""

    url: str
    matched_tokens: int
    load: float
    score: float
    expected_tokens: int = 0


def rank(
    policy: Policy,
    candidates: Sequence[Candidate],
    *,
    load_weight: float = LOAD_WEIGHT,
    prompt_tokens: int = 0,
    conversation_reuse: float = 0.0,
    first_key: bytes = b"",
    new_key: bytes = b"",
) -> list[Ranked]:
    """Return the workers, the best one first; unhealthy ones are a last resort.

    `first_key` is the key of the first image, `new_key` that of the first content that is new to
    the workers which have most of the prompt.
    """
    match policy:
        case "longest-prefix":
            scores = _prefix_scores(candidates, load_weight, prompt_tokens, conversation_reuse)
        case "consistent-hash" if first_key:
            scores = [_consistent_hash(one, first_key) for one in candidates]
        case "round-robin":
            scores = [-float(one.turn) for one in candidates]
        case _:
            scores = [-one.load for one in candidates]
    home = home_of(candidates, new_key) if policy == "longest-prefix" else None

    def order(pair: tuple[float, Candidate]) -> tuple[bool, float, bool, float, int]:
        score, one = pair
        return not one.is_healthy, -score, one.url != home, one.load, one.turn

    return [
        Ranked(one.url, one.matched_tokens, one.load, score, one.expected_tokens)
        for score, one in sorted(zip(scores, candidates, strict=True), key=order)
    ]


def _prefix_scores(
    candidates: Sequence[Candidate],
    load_weight: float,
    prompt_tokens: int,
    conversation_reuse: float,
) -> list[float]:
    """Return the scores of the longest prefix."""
    healthy = [one for one in candidates if one.is_healthy] or candidates
    least = min((one.load for one in healthy), default=0.0) + QUIET_LOAD
    queue_cost = _token_cost(load_weight, prompt_tokens) * QUIET_LOAD / least
    small = max(1.0, SMALL_PART * prompt_tokens)
    return [
        one.reused_tokens * min(1.0, one.reused_tokens / small)
        - queue_cost * one.load
        - one.new_part(prompt_tokens) * conversation_reuse * one.crowding
        for one in candidates
    ]


def _token_cost(load_weight: float, prompt_tokens: int) -> float:
    """Return how many tokens of a prompt one token of a queue costs."""
    return min(1.0, load_weight * prompt_tokens / QUIET_LOAD)


def most_reused(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the healthy workers that have most of the prompt."""
    healthy = [one for one in candidates if one.is_healthy]
    most = max((one.reused_tokens for one in healthy), default=0)
    return [one for one in healthy if one.reused_tokens == most]


def home_of(candidates: Sequence[Candidate], new_key: bytes) -> str | None:
    """Return the worker to which new content belongs, if several have equally much before it."""
    equal = most_reused(candidates)
    if len(equal) < 2 or not new_key:
        return None
    return max(equal, key=lambda one: _consistent_hash(one, new_key)).url


def _consistent_hash(one: Candidate, key: bytes) -> float:
    digest = blake3(b"%d %b%b" % (len(key), key, one.url.encode())).digest(6)
    return int.from_bytes(digest, "big") / (1 << 48)
