"""Gemma 3: crops, and the newlines around images."""

import random
from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.expansion import expand
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.gemma3 import Gemma3, count_crops
from mmhash.prompts.files import Section, UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files

TOKENS = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}
BEGIN, END, SOFT = FIRST_SPECIAL, FIRST_SPECIAL + 1, FIRST_SPECIAL + 2
# The id of a token of so many newlines.
NEWLINES = [0, *range(FIRST_SPECIAL + 3, FIRST_SPECIAL + 11)]
A = 64


def _load(folder: Path, engine: str = "vllm", run: int = 256) -> Gemma3:
    newlines = tuple("\n" * count for count in range(1, 9))
    files = write_files(
        folder,
        (*TOKENS.values(), *newlines),
        {"model_type": "gemma3"},
        engine=engine,
        processor_config={"image_seq_length": run},
        preprocessor_config={"do_pan_and_scan": True},
        tokenizer_config=TOKENS,
    )
    return Gemma3(files)


def _expand(family: Gemma3, text: str) -> tuple[list[int], list[tuple[int, int]], list[Any]]:
    sizes = [("image", MediaSize(9, 9))] * text.count("<start_of_image>")
    prompt = expand(family, family.files.encode(text), sizes, {})  # type: ignore[arg-type]
    items = prompt.items
    return prompt.token_ids, [(i.start, i.end) for i in items], [i.embeds for i in items]


@pytest.mark.parametrize(
    ("width", "height", "options", "crops"),
    [
        (1000, 1000, {}, 0),
        (1199, 1000, {}, 0),
        (1200, 1000, {}, 2),
        (3000, 1000, {}, 3),
        (1000, 3000, {}, 3),
        (8000, 1000, {}, 4),
        (8000, 1000, {"pan_and_scan_max_num_crops": 9}, 8),
        (8000, 255, {}, 0),
        (511, 300, {}, 2),
        (510, 300, {}, 0),
        (510, 300, {"pan_and_scan_min_crop_size": 100}, 2),
        (3000, 1000, {"pan_and_scan_min_ratio_to_activate": 3.5}, 0),
    ],
)
def test_crops(width: int, height: int, options: dict[str, Any], crops: int) -> None:
    given = Section("options", {"do_pan_and_scan": True, **options})
    assert count_crops(MediaSize(width, height), given) == crops
    assert count_crops(MediaSize(width, height), Section("options", options)) == 0


def test_vllm_merges_newlines_around_images(tmp_path: Path) -> None:
    family = _load(tmp_path, run=1)
    image = [BEGIN, SOFT, END]
    one, two, three, four = NEWLINES[1:5]
    del one
    assert _expand(family, "A\n<start_of_image>A") == (
        [A + A - 96, three, *image, two, 32],
        [(1, 6)],
        [[(3, 4)]],
    )
    # Two images share a token: their spans overlap.
    ids, spans, embeds = _expand(family, "<start_of_image><start_of_image>\n\n")
    assert ids == [two, *image, four, *image, four]
    assert spans == [(0, 5), (4, 9)]
    assert embeds == [[(2, 3)], [(6, 7)]]
    # vLLM merges one and two, but not three and two.
    ids, spans, _ = _expand(family, "\n\n\n<start_of_image>\n\n\n")
    assert ids == [three, two, *image, two, three]
    assert spans == [(1, 6)]


def test_pairs_are_merged_from_left_to_right(tmp_path: Path) -> None:
    """Compared with vLLM's own way: token by token, three times."""
    family = _load(tmp_path)
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
        assert family.newlines.merge_pairs(token_ids, [0, 19]) == (expected, [0, len(expected) - 1])


def test_vllm_refuses_a_newline_after_an_image(tmp_path: Path) -> None:
    with pytest.raises(InputValueError, match="single newline"):
        _expand(_load(tmp_path, run=1), "<start_of_image>\nA")


def test_a_tokenizer_merges_all_newlines(tmp_path: Path) -> None:
    family = _load(tmp_path, engine="sglang", run=1)
    image = [BEGIN, SOFT, END]
    ids, spans, embeds = _expand(family, "\n\n\n<start_of_image>\n<start_of_image>\nA")
    assert ids == [NEWLINES[5], *image, NEWLINES[5], *image, NEWLINES[3], 32]
    assert spans == [(0, 5), (4, 9)]
    assert embeds == [[(2, 3)], [(6, 7)]]


def test_a_tokenizer_merges_as_many_newlines_as_it_has_a_token_for(tmp_path: Path) -> None:
    """Seven and the two of an image are eight and one, and were seven and two."""
    family = _load(tmp_path, engine="sglang", run=1)
    image = [BEGIN, SOFT, END, NEWLINES[2]]
    ids, _, embeds = _expand(family, "\n" * 7 + "<start_of_image>")
    assert (ids, embeds) == ([NEWLINES[8], NEWLINES[1], *image], [[(3, 4)]])
    ids, _, embeds = _expand(family, "\n" * 6 + "<start_of_image>")
    assert (ids, embeds) == ([NEWLINES[8], *image], [[(2, 3)]])


def test_a_text_with_the_token_of_embeddings_is_refused_for_sglang(tmp_path: Path) -> None:
    """SGLang took the text's token for one of the image, and named its block by the image."""
    family = _load(tmp_path, engine="sglang", run=1)
    with pytest.raises(InputValueError, match="token"):
        _expand(family, "<image_soft_token>A<start_of_image>")


def test_tokens_of_newlines_are_needed(tmp_path: Path) -> None:
    files = write_files(tmp_path, tuple(TOKENS.values()), {}, tokenizer_config=TOKENS)
    with pytest.raises(UnknownModelError, match="has no token"):
        Gemma3(files)
