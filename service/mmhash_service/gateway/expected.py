"""Blocks that a worker should hold, but that its events do not list, or do not list yet.

An engine publishes the blocks of a prompt only after computing them. Without `ExpectedBlocks`,
requests for the same new image that arrive meanwhile would go to several workers, and each worker
would compute the image. An engine does not evict the blocks of a running request, so they count
until the request ends.

SGLang names the blocks after a chat's image by its processed pixels, which the gateway does not
have. A request without a plan has no named blocks at all. The gateway gives such blocks its own
names (`UnnamedBlocks`). It assumes that a worker still holds the last blocks sent to it, up to the
size of its cache. In simulations more tokens are cached this way than by remembering which worker
got each first image.

The module does no I/O and reads no clock.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from blake3 import blake3

from mmhash.lru import LruCache
from mmhash.prompts import Plan

# Enough for two prompts of 128 000 tokens in pages of one token (SGLang), in a few tens of MB.
MAX_BLOCKS = 1 << 18


class ExpectedBlocks:
    """The blocks that a worker is expected to hold, and how many requests have each of them."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        """Start empty. All requests together may add `max_blocks` blocks."""
        self._max_blocks = max_blocks
        self._requests: Counter[int] = Counter()
        self._total = 0

    def __len__(self) -> int:
        """Return the number of different blocks."""
        return len(self._requests)

    def add(self, ids: Sequence[int]) -> Sequence[int]:
        """Add the first blocks of a request, as many as fit, and return them for `remove`."""
        ids = ids[: self._max_blocks - self._total]
        self._requests.update(ids)
        self._total += len(ids)
        return ids

    def remove(self, ids: Sequence[int]) -> None:
        """Remove the blocks of a request, once for every time they were added."""
        requests = self._requests
        for one in ids:
            if requests[one] == 1:
                del requests[one]
            else:
                requests[one] -= 1
        self._total -= len(ids)

    def run(self, ids: Sequence[int], start: int) -> int:
        """Return how many blocks in a row are expected, from `start` on.

        The worker holds the blocks before `start`.
        """
        requests, end = self._requests, start
        if requests:
            while end < len(ids) and ids[end] in requests:
                end += 1
        return end - start


# Smaller blocks find more of the prefix that two prompts share, but take longer to name.
BLOCK_TOKENS = 32

_NAME_SIZE = 16

# The most names for a prompt, enough for 131 072 tokens. The event loop looks up every name for
# every worker.
_MAX_NAMES = 4096


class UnnamedBlocks(NamedTuple):
    """The gateway's names for consecutive blocks of a prompt, each bound to all earlier blocks."""

    names: Sequence[bytes] = ()
    tokens_each: int = 0


NO_BLOCKS = UnnamedBlocks()


def name_blocks(plan: Plan, block_size: int) -> UnnamedBlocks:
    """Return the blocks after the last one that the engine's events name, if there are any."""
    start = len(plan.event_ids) * block_size
    if len(plan.token_ids) - start < block_size:
        return NO_BLOCKS
    tokens = array("q", plan.token_ids[start:])
    for item in plan.items:
        first, end = max(0, item.start - start), max(0, item.end - start)
        tokens[first:end] = array("q", [item.key.u64 >> 1]) * (end - first)
    content = memoryview(tokens).cast("B")
    size = BLOCK_TOKENS * tokens.itemsize
    # The engine's last name covers everything before it, including salt and adapter.
    state = blake3(b"%d" % plan.event_ids[-1] if plan.event_ids else b"")
    names = []
    for at in range(0, min(len(content), _MAX_NAMES * size) - size + 1, size):
        state.update(content[at : at + size])
        names.append(state.digest(_NAME_SIZE))
    return UnnamedBlocks(names, BLOCK_TOKENS)


class SentBlocks:
    """The last unnamed blocks sent to a worker, computed or still being computed."""

    def __init__(self) -> None:
        self._tokens: LruCache[bytes, int] = LruCache(0, lambda _name, tokens: tokens)
        self._requests: Counter[bytes] = Counter()  # by name, while they run

    def __len__(self) -> int:
        """Return the number of computed blocks."""
        return len(self._tokens)

    def begin(self, blocks: UnnamedBlocks) -> None:
        """Count the blocks of a request until its end, or for longer if `add` gets them too."""
        self._requests.update(blocks.names)

    def end(self, blocks: UnnamedBlocks) -> None:
        """End a request."""
        for name in blocks.names:
            if self._requests[name] == 1:
                del self._requests[name]
            else:
                self._requests[name] -= 1

    def clear(self) -> None:
        """Forget all blocks except those of running requests."""
        self._tokens.clear()

    def add(self, blocks: UnnamedBlocks, cached_tokens: int) -> None:
        """Add the blocks of a computed prompt. Drop the oldest blocks beyond `cached_tokens`.

        Within a prompt the last block is dropped first, as in engines.
        """
        self._tokens.max_size = cached_tokens
        for name in reversed(blocks.names):
            self._tokens.put(name, blocks.tokens_each)

    def count_tokens(self, blocks: UnnamedBlocks) -> int:
        """Return how many tokens are in the leading blocks that were sent and not dropped."""
        count = 0
        for name in blocks.names:
            if name not in self._tokens and name not in self._requests:
                break
            count += 1
        return count * blocks.tokens_each
