"""The settings: their sources, their bounds, and that the page on them is true."""

from pathlib import Path

import pytest
from PIL import Image
from pydantic import ValidationError

from mmhash_service.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_page_has_each_setting_as_it_is(name: str) -> None:
    field = Settings.model_fields[name]
    row = f"| `{name}` | `MMHASH_{name.upper()}` | `{field.default}` | {field.description} |"
    assert row in PAGE.read_text().splitlines()


def test_the_page_has_no_other_setting() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(Settings.model_fields)


def test_a_setting_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_MAX_BODY_BYTES", "4096")
    monkeypatch.setenv("MMHASH_HOST", "::1")
    settings = Settings()
    assert (settings.max_body_bytes, settings.host) == (4096, "::1")


def test_an_argument_is_stronger_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_PORT", "1")
    assert Settings(port=2).port == 2


def test_max_pixels_goes_as_far_as_pillow_does() -> None:
    assert Image.MAX_IMAGE_PIXELS is not None
    assert Settings().max_pixels == 2 * Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": -1},
        {"port": 65536},
        {"max_body_bytes": 0},
        {"max_pixels": 0},
        {"max_pixels": 178_956_971},
    ],
)
def test_a_value_out_of_bounds_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1
