"""Rank the workers for a request. The functions depend only on their arguments.

The policy longest-prefix estimates how much all requests, this one included, would wait for their
first tokens if a worker got this request. The delay is counted in tokens, and a worker's score is
the negative of its delay:

    score = -(load + (1 + waiting) * new_tokens + evicted)
    new_tokens = prompt_tokens - matched_tokens - expected_tokens
    evicted = new_tokens / prompt_tokens * conversation_reuse * crowding

`load` is the number of tokens that the worker will compute for other requests before it starts on
this one (worker.py). `matched_tokens` is how much of the prompt the worker holds. After these come
`expected_tokens`: the worker is computing them for running requests, or they were sent to it in
blocks without names (expected.py). The worker has to compute the rest, `new_tokens`.

`waiting` is the average number of requests that wait at a worker. By Little's law, as many will be
waiting while this request is computed, and each of its tokens delays them too. In an idle fleet
nobody waits, so the worker that can answer first is best. If every worker has a queue, sending a
request away from its cache makes the queues longer.

`evicted` is the number of tokens that other requests will have to compute again. `crowding` says
how much fuller a worker's cache is of recent conversations than the average cache
(`Conversations`). A crowded worker evicts tokens that its conversations still need. At most these
are `conversation_reuse` tokens, the average reuse of a conversation, which is 0 if no prompt
continues another.

If several workers have the same load and hold equally much of a prompt, rendezvous hashing assigns
the prompt's new content to one of them. Other gateways then send the same content to the same
worker.

The other policies are for comparison: round robin, least load, and consistent hashing of the first
image's key. When a worker joins or leaves, rendezvous hashing moves only that worker's share.
"""

from collections.abc import Mapping, Sequence
from math import exp
from typing import Literal

from blake3 import blake3
from msgspec import Struct

Policy = Literal["longest-prefix", "least-load", "round-robin", "consistent-hash"]


class Candidate(Struct):  # much faster to create than a NamedTuple
    """A worker as a policy sees it."""

    url: str
    matched_tokens: int
    load: float
    turn: int
    """The number of the last decision that chose this worker. Equally good workers take turns."""
    is_healthy: bool = True
    expected_tokens: int = 0
    waiting: int = 0
    """The number of requests whose responses have not begun."""
    crowding: float = 0.0
    """How much fuller its cache is of recent conversations than the average, as a fraction."""
    next_block: int | None = None
    """The first block of the prompt that the worker lacks, or the prompt's last block."""
    score: float = 0.0
    """Higher is better. `rank` sets it."""

    @property
    def reused_tokens(self) -> int:
        """The number of the prompt's tokens that the worker need not compute."""
        return self.matched_tokens + self.expected_tokens


def rank(
    policy: Policy,
    candidates: Sequence[Candidate],
    *,
    prompt_tokens: int = 0,
    conversation_reuse: float = 0.0,
    first_key: bytes = b"",
) -> list[Candidate]:
    """Return the workers, best first. Unhealthy workers come last.

    `first_key` is the key of the first image.
    """
    match policy:
        case "longest-prefix":
            _score_by_prefix(candidates, prompt_tokens, conversation_reuse)
        case "consistent-hash" if first_key:
            for one in candidates:
                one.score = _consistent_hash(one, first_key)
        case "round-robin":
            for one in candidates:
                one.score = -float(one.turn)
        case _:
            for one in candidates:
                one.score = -one.load

    ranked = sorted(
        candidates, key=lambda one: (not one.is_healthy, -one.score, one.load, one.turn)
    )
    if policy == "longest-prefix" and len(ranked) > 1:
        best, *others = ranked
        equal = [one for one in others if one.score == best.score]
        home = _home_of(candidates, first_key) if equal else None
        if home in equal:  # a healthy worker, so the best one is healthy too
            ranked.remove(home)
            ranked.insert(0, home)
    return ranked


def _score_by_prefix(
    candidates: Sequence[Candidate], prompt_tokens: int, conversation_reuse: float
) -> None:
    """Set the scores of the policy longest-prefix."""
    healthy = [one for one in candidates if one.is_healthy] or candidates
    delayed = 1 + sum(one.waiting for one in healthy) / max(1, len(healthy))
    for one in candidates:
        new_tokens = max(0, prompt_tokens - one.reused_tokens)
        evicted = new_tokens / max(1, prompt_tokens) * conversation_reuse * one.crowding
        one.score = -(one.load + delayed * new_tokens + evicted)


def _home_of(candidates: Sequence[Candidate], first_key: bytes) -> Candidate | None:
    """Return the worker that new content belongs to if several hold most of the prompt."""
    healthy = [one for one in candidates if one.is_healthy]
    most = max((one.reused_tokens for one in healthy), default=0)
    equal = [one for one in healthy if one.reused_tokens == most]
    if len(equal) < 2:
        return None
    block = equal[0].next_block
    key = first_key or (b"" if block is None else b"%d" % block)
    return max(equal, key=lambda one: _consistent_hash(one, key)) if key else None


def _consistent_hash(one: Candidate, key: bytes) -> float:
    digest = blake3(b"%d %b%b" % (len(key), key, one.url.encode())).digest(6)
    return int.from_bytes(digest, "big") / (1 << 48)


# Forget a worker with fewer conversations than this.
_FADED = 0.001


class Conversations:
    """Estimates how many conversations recently started on each worker: requests carry no id.

    A request counts as the fraction of its prompt that the worker has to compute: 1 if the whole
    prompt is new, and about a tenth if it continues a conversation that the worker holds. Counts
    fade as new tokens replace old ones in the caches: by a factor of e for each turnover of all
    caches. A request that the engine refuses counts only until the refusal.

    A first turn does not show how large its conversation will grow, so each conversation counts
    with the average size of earlier ones. A worker that started many conversations is therefore
    crowded before they have grown. New conversations go elsewhere, even if this worker holds their
    system prompt. In simulations more tokens are cached this way than by counting the tokens sent
    (docs/benchmarks.md).
    """

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}  # by worker
        self._new_tokens = 0.0
        self._reused_tokens = 0.0

    def add(self, url: str, new_tokens: int, prompt_tokens: int, cached_tokens: int) -> None:
        """Count a request that a worker answers. All caches together hold `cached_tokens`."""
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
        """Return how much fuller of conversations each worker's cache is than the average cache.

        `computing` has, for each worker, the sum of the new fractions of its unanswered prompts.
        The result is a fraction of a cache. Below the average it is 0, because evictions there cost
        little. It is rounded down to sixteenths: while all workers have about the same number of
        conversations, gateways agree on the home of new content.
        """
        begun = {url: self._begun.get(url, 0.0) + parts for url, parts in computing.items()}
        tokens = self._new_tokens / max(1.0, sum(self._begun.values()))
        mean = sum(begun.values()) / max(1, len(begun))
        sixteenth = cached_tokens / max(1, len(begun)) / 16
        return {
            url: int((count - mean) * tokens / sixteenth) / 16 if count > mean else 0.0
            for url, count in begun.items()
        }
