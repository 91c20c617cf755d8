"""The order in which workers are tried for a request: pure functions of what is known of them.

Longest prefix. The score is an estimate, in tokens, of the time that the request would take from
all requests until their first tokens, negated:

    score = -(load + (1 + waiting) * new_tokens + evicted)
    new_tokens = prompt_tokens - matched_tokens - expected_tokens
    evicted = new_tokens / prompt_tokens * conversation_reuse * crowding

`load` is the number of tokens that the worker still has to compute for others (worker.py): this
request waits for them. `matched_tokens` are those of the prompt that the worker holds,
`expected_tokens` those after them that it computes for requests that run (expected.py), or was sent
under names that its events do not show (there). So it has to compute `new_tokens`.

As many requests as wait now, `waiting` at a worker on average, will wait while this one is computed
(Little's law): each of its tokens delays them, too. If the fleet is idle, nobody waits, and the
fastest worker for this request is the best. If all workers have queues, a request that leaves its
cache makes the queues longer.

`evicted` are the tokens that others will have to compute again. `crowding` is the part of its cache
that the conversations which began at a worker lately fill above the mean of the fleet
(conversations.py). Such a worker evicts what they still need, up to `conversation_reuse` tokens,
which a conversation reuses on average; none if no prompt continues another.

If several workers have equally much of a prompt, or none of it, and equal loads, what is new in it
belongs to one of them by rendezvous hashing: other gateways send the same content there too.

The controls of a comparison: round robin, least load, and consistent hashing (rendezvous: a worker
that joins or leaves moves only its own share) on the key of the first image.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from blake3 import blake3

Policy = Literal["longest-prefix", "least-load", "round-robin", "consistent-hash"]


class Candidate(NamedTuple):
    """A worker, as a policy sees it."""

    url: str
    matched_tokens: int
    load: float
    turn: int
    """The number of the decision that chose it last: workers that are equal take turns."""
    is_healthy: bool = True
    expected_tokens: int = 0
    waiting: int = 0
    """The requests whose responses have not begun."""
    crowding: float = 0.0
    """The part of its cache that recent conversations fill above the mean of the fleet."""

    @property
    def reused_tokens(self) -> int:
        """The tokens of the prompt that it will not have to compute."""
        return self.matched_tokens + self.expected_tokens


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
            scores = _prefix_scores(candidates, prompt_tokens, conversation_reuse)
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
    candidates: Sequence[Candidate], prompt_tokens: int, conversation_reuse: float
) -> list[float]:
    """Return the scores of the longest prefix."""
    healthy = [one for one in candidates if one.is_healthy] or candidates
    delayed = 1 + sum(one.waiting for one in healthy) / max(1, len(healthy))

    def score(one: Candidate) -> float:
        new_tokens = max(0, prompt_tokens - one.reused_tokens)
        evicted = new_tokens / max(1, prompt_tokens) * conversation_reuse * one.crowding
        return -(one.load + delayed * new_tokens + evicted)

    return [score(one) for one in candidates]


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
