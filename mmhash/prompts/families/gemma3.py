"""Gemma 3: an image, and with pan and scan each of its crops, is 256 tokens between newlines."""

import math
from bisect import bisect_right
from contextlib import suppress
from itertools import groupby
from typing import ClassVar

from mmhash.errors import InputValueError
from mmhash.prompts.families.config_values import read_count, read_token
from mmhash.prompts.families.family import (
    Expansion,
    ImageFamily,
    MediaSize,
    PlacedItem,
    Placeholder,
)
from mmhash.prompts.families.layout import lay_out
from mmhash.prompts.files import ModelFiles, Section, UnknownModelError

MAX_CROPS = 64
MAX_NEWLINES = 64
"""The longest newline token to look for. Gemma 3's longest has 31 newlines."""


class Gemma3(ImageFamily):
    """Gemma 3: images."""

    model_types: ClassVar[frozenset[str]] = frozenset({"gemma3"})
    options: ClassVar[frozenset[str]] = frozenset({
        "do_pan_and_scan", "pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops",
        "pan_and_scan_min_ratio_to_activate",
    })  # fmt: skip

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.run = read_count(files.processor, "image_seq_length", 256)
        start = read_token(files, "boi_token")
        self.image = Placeholder(start, start)
        soft = read_token(files, "image_token")
        self.token = files.token_id(soft)
        self.text = f"\n\n{start}{soft}{read_token(files, 'eoi_token')}\n\n"
        # The token of n newlines at index n, or -1 if there is no such token.
        self.newlines = [-1, *(files.token_id("\n" * count) for count in range(1, 5))]
        with suppress(UnknownModelError):  # stops at the tokenizer's longest
            for count in range(5, MAX_NEWLINES + 1):
                self.newlines.append(files.token_id("\n" * count))

    def expand_image(self, size: MediaSize, given: Section) -> Expansion:
        """Return the tokens of an image and of its crops."""
        crops = count_crops(size, given)
        text = self.text
        if crops:
            text = (
                f"Here is the original image {text} and here are some crops to help you "
                f"see better {' '.join([text] * crops)}"
            )
        return lay_out(self.files, text, self.token, self.run)

    def merge(
        self, token_ids: list[int], items: list[PlacedItem]
    ) -> tuple[list[int], list[PlacedItem]]:
        """Return the prompt with the newlines around images merged into adjacent newlines."""
        places = [place for item in items for place in (item.start, item.end - 1)]
        if self.files.engine == "vllm":
            token_ids, places = self.merge_pairs(token_ids, places)
            if any(token_ids[last] == self.newlines[3] for last in places[1::2]):
                raise InputValueError(
                    "vLLM cannot serve an image of this model before a single newline"
                )
        else:
            token_ids, places = self.merge_runs(token_ids, places)
        starts = places[::2]
        return token_ids, [
            _move(item, start - item.start) for item, start in zip(items, starts, strict=True)
        ]

    def merge_pairs(self, token_ids: list[int], places: list[int]) -> tuple[list[int], list[int]]:
        """Merge adjacent tokens of one and two newlines as vLLM does, in three passes.

        Also return the new positions of the tokens at `places`. vLLM looks for each image's tokens
        afterwards, and reads three newlines as one and two. So it finds no image before a single
        newline.
        """
        for first, second in ((1, 2), (2, 1), (2, 2)):
            pair = self.newlines[first], self.newlines[second]
            token_ids, gone = _merge_pair(token_ids, pair, self.newlines[first + second])
            places = [place - bisect_right(gone, place) for place in places]
        return token_ids, places

    def merge_runs(self, token_ids: list[int], places: list[int]) -> tuple[list[int], list[int]]:
        """Merge any number of newlines, as a tokenizer does that reads the expanded text.

        Also return the new positions of the tokens at `places`.
        """
        merged: list[int] = []
        moved: list[int] = []
        for is_newline, group in groupby(token_ids, frozenset(self.newlines).__contains__):
            run = joined = list(group)
            if is_newline and len(run) > 1:
                total = sum(map(self.newlines.index, run))
                joined = self.files.encode("\n" * total)
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


def count_crops(size: MediaSize, given: Section) -> int:
    """Return the number of crops of an image.

    The processor's built-in defaults override the values in the image processor's file. Only
    options of the request change them.
    """
    if not given.get("do_pan_and_scan", bool, default=False):
        return 0
    least = read_count(given, "pan_and_scan_min_crop_size", 256)
    most = read_count(given, "pan_and_scan_max_num_crops", 4, MAX_CROPS)
    long, short = max(size.width, size.height), min(size.width, size.height)
    if long / short < given.get("pan_and_scan_min_ratio_to_activate", float, 1.2):
        return 0
    crops = min(most, max(2, min(long // least, math.floor(long / short + 0.5))))
    return 0 if min(math.ceil(long / crops), short) < least else crops
