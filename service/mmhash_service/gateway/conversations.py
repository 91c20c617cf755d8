"""The conversations that began at each worker lately, by estimate: requests do not name theirs.

A request counts as a part of a new conversation: the part of its prompt that its worker has to
compute. That is 1 if all of the prompt is new, and about a tenth for the next turn of a
conversation that the worker has. The counts fade as the caches get new tokens: to a third (1/e)
after as many as all caches hold together. A request that the engine refuses counts only until then.

The size of a new conversation is not known from its first turn, so each counts with the mean of
those before it. A worker at which many conversations have begun is thus crowded before they have
grown, and the next ones go elsewhere, even if it has their system prompt. On 16 seeds of `agents`
and two slow workers, simulated, 86.2 % of the tokens are cached; 82.9 when only the tokens counted
that a worker had been sent (docs/benchmarks.md has the command). No I/O, no clock.
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
        """Add a request that a worker answers; `cached_tokens` are those that all caches hold."""
        kept = exp(-new_tokens / cached_tokens)
        # Workers that have left fade, too.
        self._begun = {one: kept * n for one, n in self._begun.items() if n > _FADED}
        self._begun[url] = self._begun.get(url, 0.0) + new_tokens / max(1, prompt_tokens)
        self._new_tokens = kept * self._new_tokens + new_tokens
        self._reused_tokens = kept * self._reused_tokens + prompt_tokens - new_tokens

    @property
    def reused_tokens(self) -> float:
        """The tokens of its prompts that a conversation need not compute, on average."""
        return self._reused_tokens / max(1.0, sum(self._begun.values()))

    def crowding(self, computing: Mapping[str, float], cached_tokens: int) -> dict[str, float]:
        """Return the part of its cache that each worker's conversations fill above the mean.

        `computing` has the new parts of the requests that each worker has not answered yet.
        0 if they fill less: what is computed there again evicts little, but it is computed. In
        sixteenths: while all got about as many, gateways agree on the home of new content.
        """
        begun = {url: self._begun.get(url, 0.0) + parts for url, parts in computing.items()}
        tokens = self._new_tokens / max(1.0, sum(self._begun.values()))
        mean = sum(begun.values()) / max(1, len(begun))
        sixteenth = cached_tokens / max(1, len(begun)) / 16
        return {
            url: int(max(0.0, count - mean) * tokens / sixteenth) / 16
            for url, count in begun.items()
        }
