"""The blocks of the requests that a worker computes: it will hold them, and has not said so yet.

An engine publishes the blocks of a prompt after it has computed them. Without this, requests for
the same new image that arrive meanwhile go to several workers, and each of them computes it. An
engine does not evict the blocks of a request that runs: so they count until it ends. No I/O, no
clock.
"""

from collections.abc import Sequence

# Two prompts of 128 000 tokens in pages of one token (SGLang): 30 MB at most.
MAX_BLOCKS = 1 << 18


class ExpectedBlocks:
    """The blocks that one worker is expected to hold, each with the number of its requests."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        """Make an empty set, for at most `max_blocks` of all requests together."""
        self._max_blocks = max_blocks
        self._requests: dict[int, int] = {}
        self._total = 0

    def __len__(self) -> int:
        """Return the number of different blocks."""
        return len(self._requests)

    def add(self, ids: Sequence[int]) -> Sequence[int]:
        """Add the blocks of a request, as many as there is room for; return those, for `remove`."""
        ids = ids[: self._max_blocks - self._total]
        requests = self._requests
        for one in ids:
            requests[one] = requests.get(one, 0) + 1
        self._total += len(ids)
        return ids

    def remove(self, ids: Sequence[int]) -> None:
        """Remove the blocks of a request, once for each time that they were added."""
        requests = self._requests
        for one in ids:
            if requests[one] == 1:
                del requests[one]
            else:
                requests[one] -= 1
        self._total -= len(ids)

    def run(self, ids: Sequence[int], start: int) -> int:
        """Return how many of the blocks from `start` on are expected, up to the first that is not.

        The blocks before `start` are those that the worker holds.
        """
        requests, end = self._requests, start
        if requests:
            while end < len(ids) and ids[end] in requests:
                end += 1
        return end - start
