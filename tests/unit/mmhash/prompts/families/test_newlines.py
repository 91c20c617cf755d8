"""Newlines around images are merged as vLLM and a tokenizer merge them."""

import random

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.newlines import Newlines
from mmhash.prompts.items import PlacedItem
from mmhash.prompts.section import UnknownModelError
from mmhash.prompts.text_encoder import TextEncoder
from tests.support.family_files import FIRST_SPECIAL, read_files

IMAGE_TOKENS = ("<start>", "<end>", "<soft>")
BEGIN, END, SOFT = FIRST_SPECIAL, FIRST_SPECIAL + 1, FIRST_SPECIAL + 2
# The id of a token of so many newlines.
NEWLINES = [0, *range(FIRST_SPECIAL + 3, FIRST_SPECIAL + 11)]
A = 64


def _encoder(newlines: int = 8) -> TextEncoder:
    runs = tuple("\n" * count for count in range(1, newlines + 1))
    return read_files((*IMAGE_TOKENS, *runs), {}).encoder


def _merge(
    text: str, engine: str = "vllm"
) -> tuple[list[int], list[tuple[int, int]], list[list[tuple[int, int]]]]:
    """Put an image between two newlines each at every `I`, and merge."""
    encoder = _encoder()
    first, *others = text.split("I")
    token_ids = encoder.encode(first)
    items = []
    for other in others:
        start = len(token_ids)
        token_ids += [*encoder.encode("\n\n"), BEGIN, SOFT, END, *encoder.encode("\n\n")]
        items.append(PlacedItem("image", start, len(token_ids), [(start + 2, start + 3)]))
        token_ids += encoder.encode(other)
    token_ids, items = Newlines(encoder, engine).merge(token_ids, items)
    return token_ids, [(i.start, i.end) for i in items], [i.embeds for i in items]


def test_vllm_merges_newlines_around_images() -> None:
    image = [BEGIN, SOFT, END]
    one, two, three, four = NEWLINES[1:5]
    del one
    assert _merge("A\nIA") == (
        [A + A - 96, three, *image, two, 32],
        [(1, 6)],
        [[(3, 4)]],
    )
    # Two images share a token: their spans overlap.
    ids, spans, embeds = _merge("II\n\n")
    assert ids == [two, *image, four, *image, four]
    assert spans == [(0, 5), (4, 9)]
    assert embeds == [[(2, 3)], [(6, 7)]]
    # vLLM merges one and two, but not three and two.
    ids, spans, _ = _merge("\n\n\nI\n\n\n")
    assert ids == [three, two, *image, two, three]
    assert spans == [(1, 6)]


def test_pairs_are_merged_from_left_to_right() -> None:
    """Compared with vLLM's own way: token by token, three times."""
    newlines = Newlines(_encoder(), "vllm")
    choose = random.Random(0).choices
    for _ in range(300):
        token_ids = choose([*NEWLINES[1:5], A, BEGIN], weights=[3, 6, 1, 1, 1, 1], k=20)
        expected = token_ids
        for first, second in ((1, 2), (2, 1), (2, 2)):
            merged: list[int] = []
            for token in expected:
                if [*merged[-1:], token] == [NEWLINES[first], NEWLINES[second]]:
                    merged[-1] = NEWLINES[first + second]
                else:
                    merged.append(token)
            expected = merged
        assert newlines.merge_pairs(token_ids, [0, 19]) == (expected, [0, len(expected) - 1])


def test_vllm_refuses_a_newline_after_an_image() -> None:
    with pytest.raises(InputValueError, match="single newline"):
        _merge("I\nA")


def test_a_tokenizer_merges_all_newlines() -> None:
    image = [BEGIN, SOFT, END]
    ids, spans, embeds = _merge("\n\n\nI\nI\nA", "sglang")
    assert ids == [NEWLINES[5], *image, NEWLINES[5], *image, NEWLINES[3], 32]
    assert spans == [(0, 5), (4, 9)]
    assert embeds == [[(2, 3)], [(6, 7)]]


def test_a_tokenizer_merges_as_many_newlines_as_it_has_a_token_for() -> None:
    """Seven and the two of an image are eight and one, and were seven and two."""
    image = [BEGIN, SOFT, END, NEWLINES[2]]
    ids, _, embeds = _merge("\n" * 7 + "I", "sglang")
    assert (ids, embeds) == ([NEWLINES[8], NEWLINES[1], *image], [[(3, 4)]])
    ids, _, embeds = _merge("\n" * 6 + "I", "sglang")
    assert (ids, embeds) == ([NEWLINES[8], *image], [[(2, 3)]])


def test_tokens_of_newlines_are_needed() -> None:
    with pytest.raises(UnknownModelError, match="has no token"):
        Newlines(_encoder(newlines=3), "vllm")
