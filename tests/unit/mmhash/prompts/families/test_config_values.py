"""Settings are read within bounds, and what is not known is refused."""

from pathlib import Path

import pytest

from mmhash.prompts.families.config_values import (
    check_token,
    read_count,
    read_token,
    require_equal,
)
from mmhash.prompts.files import Section, UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files


def test_counts_have_bounds() -> None:
    assert read_count(Section("x.json", {"n": 7}), "n") == 7
    assert read_count(Section("x.json", {"n": None}), "n", 3) == 3
    for value in (0, -1, 9, True, "7", 1.0):
        with pytest.raises(UnknownModelError, match=r"n in x\.json"):
            read_count(Section("x.json", {"n": value}), "n", most=8)
    with pytest.raises(UnknownModelError, match="has no n"):
        read_count(Section("x.json", {}), "n")


def test_files_must_agree() -> None:
    require_equal(Section("x.json", {}), "n", 1)
    require_equal(Section("x.json", {"n": 1}), "n", 1)
    with pytest.raises(UnknownModelError, match=r"n in x\.json"):
        require_equal(Section("x.json", {"n": 2}), "n", 1)


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
    assert read_token(files, "eoi_token", "<e>") == "<e>"
    with pytest.raises(UnknownModelError, match="has no eoi_token"):
        read_token(files, "eoi_token")


def test_config_and_tokenizer_agree_on_the_image_token(tmp_path: Path) -> None:
    files = write_files(tmp_path, ("<b>",), {"image_token_id": FIRST_SPECIAL})
    assert check_token(files, "<b>", 5) == FIRST_SPECIAL
    with pytest.raises(UnknownModelError, match="image_token_id"):
        check_token(files, "<|endoftext|>", 5)
    with pytest.raises(UnknownModelError, match="has no token"):
        check_token(files, "<c>", 5)
