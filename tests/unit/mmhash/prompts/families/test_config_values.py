"""Values of a model's configuration are checked against bounds, and unknown ones refused."""

from pathlib import Path

import pytest

from mmhash.prompts.families.config_values import read_count, read_token
from mmhash.prompts.files import Section, UnknownModelError
from tests.support.family_files import write_files


def test_counts_have_bounds() -> None:
    assert read_count(Section("x.json", {"n": 7}), "n") == 7
    assert read_count(Section("x.json", {"n": None}), "n", 3) == 3
    for value in (0, -1, 9, True, "7", 1.0):
        with pytest.raises(UnknownModelError, match=r"n in x\.json"):
            read_count(Section("x.json", {"n": value}), "n", most=8)
    with pytest.raises(UnknownModelError, match="has no n"):
        read_count(Section("x.json", {}), "n")


@pytest.mark.parametrize(
    "config",
    [
        {"boi_token": "<b>"},
        {"boi_token": {"content": "<b>"}},
        {"extra_special_tokens": {"boi_token": "<b>"}},
        {"extra_special_tokens": ["<b>"], "model_specific_special_tokens": {"boi_token": "<b>"}},
    ],
)
def test_tokens_of_the_tokenizer(tmp_path: Path, config: dict[str, object]) -> None:
    files = write_files(tmp_path, ("<b>",), {}, tokenizer_config=config)
    assert read_token(files, "boi_token") == "<b>"
    with pytest.raises(UnknownModelError, match="has no eoi_token"):
        read_token(files, "eoi_token")
