"""Estimate how many conversations recently began at each worker. Requests carry no conversation id.

A request counts as the fraction of a new conversation that its worker has to compute: 1 if the
whole prompt is new, and about a tenth for the next turn of a conversation that the worker has. The
counts fade as the caches take in new tokens, by a factor of e for as many tokens as all caches hold
together. A request that the engine refuses counts only until the refusal.

The first turn does not tell how large a conversation will grow, so each counts with the mean size
of earlier conversations. A worker at which many conversations began is therefore crowded before
they have grown, and new ones go elsewhere, even if this worker has their system prompt. In
simulations this caches more tokens than counting the tokens sent (docs/benchmarks.md). No I/O, no
clock.
"""

from collections.abc import Mapping
from math import exp

# A worker with fewer conversations than this is forgotten.
_FADED = 0.001


class Conversations:
    """The conversations of a fleet."""

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
