"""Merge newlines around items, as engines do for Gemma 3 and Gemma 3n."""

from bisect import bisect_right
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from mmhash.errors import InputValueError
from mmhash.prompts.items import PlacedItem
from mmhash.prompts.section import UnknownModelError

if TYPE_CHECKING:
    from mmhash.prompts.text_encoder import TextEncoder  # imports tokenizers

MAX_NEWLINES = 64
"""The longest newline token to look for. Gemma 3's longest has 31 newlines."""


class Newlines:
    """The newline tokens of a tokenizer."""

    def __init__(self, encoder: "TextEncoder", engine: str) -> None:
        self._encoder, self._engine = encoder, engine
        # The token of n newlines at index n, or -1 if there is no such token.
        self.tokens = [-1, *(encoder.token_id("\n" * count) for count in range(1, 5))]
        with suppress(UnknownModelError):  # the tokenizer has no longer newline token
            for count in range(5, MAX_NEWLINES + 1):
                self.tokens.append(encoder.token_id("\n" * count))

    def merge(
        self, token_ids: list[int], items: list[PlacedItem]
    ) -> tuple[list[int], list[PlacedItem]]:
        """Return the prompt with the newlines around items merged into adjacent newlines."""
        places = [place for item in items for place in (item.start, item.end - 1)]
        if self._engine == "vllm":
            token_ids, places = self.merge_pairs(token_ids, places)
            if any(token_ids[last] == self.tokens[3] for last in places[1::2]):
                raise InputValueError(
                    "vLLM cannot serve an item of this model before a single newline"
                )
        else:
            token_ids, places = self.merge_runs(token_ids, places)
        starts = places[::2]
        return token_ids, [
            _move(item, start - item.start) for item, start in zip(items, starts, strict=True)
        ]

    def merge_pairs(self, token_ids: list[int], places: list[int]) -> tuple[list[int], list[int]]:
        """Merge adjacent tokens of one and two newlines as vLLM does, in three passes.

        Also return the new positions of the tokens at `places`. vLLM looks for each item's tokens
        afterwards, and reads three newlines as one and two. So it finds no item before a single
        newline.
        """
        for first, second in ((1, 2), (2, 1), (2, 2)):
            pair = self.tokens[first], self.tokens[second]
            token_ids, gone = _merge_pair(token_ids, pair, self.tokens[first + second])
            places = [place - bisect_right(gone, place) for place in places]
        return token_ids, places

    def merge_runs(self, token_ids: list[int], places: list[int]) -> tuple[list[int], list[int]]:
        """Merge any number of newlines, as a tokenizer that reads the expanded text would.

        Also return the new positions of the tokens at `places`.
        """
        merged: list[int] = []
        moved: list[int] = []
        for is_newline, group in groupby(token_ids, frozenset(self.tokens).__contains__):
            run = joined = list(group)
            if is_newline and len(run) > 1:
                total = sum(map(self.tokens.index, run))
                joined = self._encoder.encode("\n" * total)
            moved += range(len(merged), len(merged) + min(len(run), len(joined)))
            moved += [len(merged) + len(joined) - 1] * (len(run) - len(joined))
            merged += joined
        return merged, [moved[place] for place in places]


def _move(item: PlacedItem, by: int) -> PlacedItem:
    embeds = [(start + by, end + by) for start, end in item.embeds]
    return item._replace(start=item.start + by, end=item.end + by, embeds=embeds)


def _merge_pair(
    token_ids: list[int], pair: tuple[int, int], token: int
) -> tuple[list[int], list[int]]:
    """Replace each pair by a token. Return the ids and the places of the pairs' second tokens.

    Tokens between newlines are copied in slices, not one by one.
    """
    first, second = pair
    merged: list[int] = []
    gone: list[int] = []
    start = position = 0
    with suppress(ValueError):  # no further pair
        while True:
            position = token_ids.index(first, position) + 1
            if token_ids[position : position + 1] == [second]:
                merged += token_ids[start : position - 1]
                merged.append(token)
                gone.append(position)
                start = position = position + 1
    return merged + token_ids[start:], gone
