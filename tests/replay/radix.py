"""A model of an engine's prefix cache: a radix tree over pages of 32 token ids."""

from collections.abc import Sequence
from typing import NamedTuple

PAGE = 32


class Prefill(NamedTuple):
    """The numbers of a request's tokens that had to be computed and that were in the cache."""

    new: int
    cached: int


class RadixCache:
    """SGLang's cache: match whole pages of a prompt, compute the rest, keep all whole pages."""

    def __init__(self) -> None:
        self._root: dict[tuple[int, ...], dict] = {}  # type: ignore[type-arg]

    def run(self, ids: Sequence[int]) -> Prefill:
        pages = [tuple(ids[at : at + PAGE]) for at in range(0, len(ids) - PAGE + 1, PAGE)]
        # The last token is always computed, for its logits are wanted.
        matchable = (len(ids) - 1) // PAGE
        node, matched = self._root, 0
        while matched < matchable and pages[matched] in node:
            node = node[pages[matched]]
            matched += 1
        for page in pages[matched:]:
            node = node.setdefault(page, {})
        return Prefill(len(ids) - matched * PAGE, matched * PAGE)
