"""Rank the workers for a request, by pure functions of their state.

Longest prefix. The score estimates, in tokens, how much the request would delay the first tokens of
all requests, itself included, negated:

    score = -(load + (1 + waiting) * new_tokens + evicted)
    new_tokens = prompt_tokens - matched_tokens - expected_tokens
    evicted = new_tokens / prompt_tokens * conversation_reuse * crowding

`load` is the number of tokens that the worker still has to compute for other requests (worker.py),
for which this request waits. `matched_tokens` is how much of the prompt the worker holds.
`expected_tokens` follow these: the worker is computing them for running requests, or was sent them
without names (expected.py). The worker has to compute the rest, `new_tokens`.

`waiting` is the average number of requests that wait at a worker. By Little's law as many will wait
while this request is computed, and each of its tokens delays them too. In an idle fleet nobody
waits, and the fastest worker for this request is best. If all workers have queues, a request that
leaves its cache makes the queues longer.

`evicted` is the number of tokens that other requests will have to compute again. `crowding` says
how much more of a worker's cache recent conversations fill than the fleet's mean
(`Conversations`). A crowded worker evicts tokens that its conversations still need: up to
`conversation_reuse`, the average reuse of a conversation, which is 0 if no prompt continues
another.

If several workers have equal loads and hold equally much of a prompt, rendezvous hashing assigns
the prompt's new content to one of them. Other gateways then send the same content to the same
worker.

Policies for comparison: round robin, least load, and consistent hashing on the key of the first
image. Rendezvous hashing moves only the share of a worker that joins or leaves.
"""

from collections.abc import Mapping, Sequence
from math import exp
from typing import Literal

from blake3 import blake3
from msgspec import Struct

Policy = Literal["longest-prefix", "least-load", "round-robin", "consistent-hash"]


class Candidate(Struct):  # much faster to make than a NamedTuple
    """A worker as a policy sees it."""

    url: str
    matched_tokens: int
    load: float
    turn: int
    """The number of the last decision that chose this worker. Equal workers take turns."""
    is_healthy: bool = True
    expected_tokens: int = 0
    waiting: int = 0
    """The number of requests whose responses have not begun."""
    crowding: float = 0.0
    """How much more of its cache recent conversations fill than the fleet's mean."""
    next_block: int | None = None
    """The prompt's first block that the worker lacks, or its last block."""

    @property
    def reused_tokens(self) -> int:
        """The prompt's tokens that the worker need not compute."""
        return self.matched_tokens + self.expected_tokens


class Ranked(Struct, omit_defaults=True):
    """A worker with its score. Higher is better."""

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
) -> list[Ranked]:
    """Return the workers, best first. Unhealthy workers are a last resort.

    `first_key` is the key of the first image.
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
    home = _home_of(candidates, first_key) if policy == "longest-prefix" else None

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
    """Return the scores of the policy longest-prefix."""
    healthy = [one for one in candidates if one.is_healthy] or candidates
    delayed = 1 + sum(one.waiting for one in healthy) / max(1, len(healthy))

    def score(one: Candidate) -> float:
        new_tokens = max(0, prompt_tokens - one.reused_tokens)
        evicted = new_tokens / max(1, prompt_tokens) * conversation_reuse * one.crowding
        return -(one.load + delayed * new_tokens + evicted)

    return [score(one) for one in candidates]


def _home_of(candidates: Sequence[Candidate], first_key: bytes) -> str | None:
    """Return the worker to which new content belongs, if several hold most of the prompt."""
    healthy = [one for one in candidates if one.is_healthy]
    most = max((one.reused_tokens for one in healthy), default=0)
    equal = [one for one in healthy if one.reused_tokens == most]
    if len(equal) < 2:
        return None
    block = equal[0].next_block
    key = first_key or (b"" if block is None else b"%d" % block)
    return max(equal, key=lambda one: _consistent_hash(one, key)).url if key else None


def _consistent_hash(one: Candidate, key: bytes) -> float:
    digest = blake3(b"%d %b%b" % (len(key), key, one.url.encode())).digest(6)
    return int.from_bytes(digest, "big") / (1 << 48)


# A worker with fewer conversations than this is forgotten.
_FADED = 0.001


class Conversations:
    """Estimate how many conversations recently began at each worker: requests carry no id.

    A request counts as the fraction of a new conversation that its worker has to compute: 1 if the
    whole prompt is new, and about a tenth for the next turn of a conversation that the worker has.
    The counts fade as the caches take in new tokens, by a factor of e for as many tokens as all
    caches hold together. A request that the engine refuses counts only until the refusal.

    The first turn does not tell how large a conversation will grow, so each counts with the mean
    size of earlier conversations. A worker at which many conversations began is therefore crowded
    before they have grown, and new ones go elsewhere, even if this worker has their system prompt.
    In simulations this caches more tokens than counting the tokens sent (docs/benchmarks.md).
    """

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}  # by worker
        self._new_tokens = 0.0
        self._reused_tokens = 0.0

    def add(self, url: str, new_tokens: int, prompt_tokens: int, cached_tokens: int) -> None:
        """Add a request that a worker answers. All caches together hold `cached_tokens`."""
        kept = exp(-new_tokens / cached_tokens)
        # The counts of workers that have left fade too.
        self._begun = {one: kept * n for one, n in self._begun.items() if n > _FADED}
        self._begun[url] = self._begun.get(url, 0.0) + new_tokens / max(1, prompt_tokens)
        self._new_tokens = kept * self._new_tokens + new_tokens
        self._reused_tokens = kept * self._reused_tokens + prompt_tokens - new_tokens

    @property
    def reused_tokens(self) -> float:
        """The average number of prompt tokens that a conversation reuses."""
        return self._reused_tokens / max(1.0, sum(self._begun.values()))

    def crowding(self, computing: Mapping[str, float], cached_tokens: int) -> dict[str, float]:
        """Return how much more of its cache each worker's recent conversations fill than the mean.

        `computing` has the new fractions of the requests that each worker has not answered yet. The
        result is a fraction of the cache, and 0 below the mean, because evictions there cost
        little. Fractions are rounded to sixteenths: while all workers have about the same number of
        conversations, gateways agree on the home of new content.
        """
        begun = {url: self._begun.get(url, 0.0) + parts for url, parts in computing.items()}
        tokens = self._new_tokens / max(1.0, sum(self._begun.values()))
        mean = sum(begun.values()) / max(1, len(begun))
        sixteenth = cached_tokens / max(1, len(begun)) / 16
        return {
            url: int(max(0.0, count - mean) * tokens / sixteenth) / 16
            for url, count in begun.items()
        }
