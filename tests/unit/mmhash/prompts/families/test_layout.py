"""Runs of a token are written out, and are the embeddings."""

from pathlib import Path

import pytest

from mmhash.prompts.families.layout import lay_out, mark_embeds
from mmhash.prompts.files import UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files


def test_runs(tmp_path: Path) -> None:
    files = write_files(tmp_path, ("<b>", "<i>"), {})
    image = FIRST_SPECIAL + 1
    expansion = lay_out(files, "<b><i><b><i>", image, 3)
    begin = FIRST_SPECIAL
    assert expansion.token_ids == [begin, image, image, image, begin, image, image, image]
    assert expansion.embeds == [(1, 4), (5, 8)]
    assert lay_out(files, "<b>", image, 3).embeds == []


def test_embeds_of_written_runs() -> None:
    assert mark_embeds([5, 5, 6, 5], 5).embeds == [(0, 2), (3, 4)]


def test_too_many_tokens_are_refused(tmp_path: Path) -> None:
    files = write_files(tmp_path, ("<b>",), {})
    with pytest.raises(UnknownModelError, match="more than"):
        lay_out(files, "<b>" * 17, FIRST_SPECIAL, 65536)
