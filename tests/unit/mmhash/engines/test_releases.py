import pytest

from mmhash import InputTypeError, InputValueError
from mmhash.engines.releases import Range, Releases

KNOWN = Releases("engine", Range("0.4.3", "0.5.8.post1", "old"), Range("0.31", "0.33.0", "new"))


@pytest.mark.parametrize(
    ("version", "recipe"),
    [("0.4.3", "old"), ("0.4.10", "old"), ("0.5", "old"), ("0.5.8", "old"), ("0.5.8.post1", "old"), ("0.33rc2", "new"), ("0.33.0rc1", "new"),
     ("0.31", "new"), ("0.31.0", "new"), ("0.32.7.post2", "new"), ("0.33", "new")],
)  # fmt: skip
def test_a_release_has_a_recipe(version: str, recipe: str) -> None:
    assert KNOWN.recipe(version) == recipe


@pytest.mark.parametrize(
    "version", ["0.4.2", "0.5.8.post2", "0.5.9", "0.30.9", "0.33.1", "1.0", "0.31rc9", "0.5.9rc1"]
)
def test_an_unknown_release_lists_the_known(version: str) -> None:
    with pytest.raises(InputValueError, match=r"0\.4\.3 to 0\.5\.8\.post1, 0\.31 to 0\.33\.0"):
        KNOWN.recipe(version)


@pytest.mark.parametrize("version", ["", "latest", "v0.5", "0.5.", "5", "0.5.23\n", "0.5.8a1"])
def test_what_is_no_release(version: str) -> None:
    with pytest.raises(InputValueError, match="not a release"):
        KNOWN.recipe(version)
    with pytest.raises(InputTypeError, match="float"):
        KNOWN.recipe(0.5)  # type: ignore[arg-type]
