"""The order in which workers are tried for a request: pure functions of what is known of them.

Longest prefix, in tokens:

    score = matched_tokens - load_weight * load

`load` is the number of tokens that the worker still has to compute for others (fleet.py). So with a
weight of 1 a worker is chosen for its cache as long as what the cache saves is more than what waits
before it: the score of the chosen worker is, up to a constant, the negative time to first token in
units of one token's computation.

The controls of a comparison: round robin, least load, and consistent hashing (rendezvous: a worker
that joins or leaves moves only its own share) on the key of the first image.
"""

from collections.abc import Callable, Sequence
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


class Ranked(NamedTuple):
    """A worker with its score; a higher one is better."""

    url: str
    matched_tokens: int
    load: float
    score: float


def rank(
    policy: Policy, candidates: Sequence[Candidate], *, load_weight: float, first_key: bytes = b""
) -> list[Ranked]:
    """Return the workers, the best one first; unhealthy ones are a last resort."""
    score = _SCORES[policy]
    if policy == "consistent-hash" and not first_key:
        score = _least_load
    scored = [(score(one, load_weight, first_key), one) for one in candidates]
    scored.sort(key=lambda pair: (not pair[1].is_healthy, -pair[0], pair[1].load, pair[1].turn))
    return [Ranked(one.url, one.matched_tokens, one.load, value) for value, one in scored]


def _longest_prefix(one: Candidate, load_weight: float, _first_key: bytes) -> float:
    return one.matched_tokens - load_weight * one.load


def _least_load(one: Candidate, _load_weight: float, _first_key: bytes) -> float:
    return -one.load


def _round_robin(one: Candidate, _load_weight: float, _first_key: bytes) -> float:
    return -float(one.turn)


def _consistent_hash(one: Candidate, _load_weight: float, first_key: bytes) -> float:
    digest = blake3(b"%d %b%b" % (len(first_key), first_key, one.url.encode())).digest(6)
    return int.from_bytes(digest, "big") / (1 << 48)


_SCORES: dict[Policy, Callable[[Candidate, float, bytes], float]] = {
    "longest-prefix": _longest_prefix,
    "least-load": _least_load,
    "round-robin": _round_robin,
    "consistent-hash": _consistent_hash,
}
