import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmhash import InputTypeError, InputValueError, engines
from mmhash.engines.registry import ENGINES
from mmhash.engines.releases import Range, Releases, _parse

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
def test_a_malformed_release_is_refused(version: str) -> None:
    with pytest.raises(InputValueError, match="not a release"):
        KNOWN.recipe(version)
    with pytest.raises(InputTypeError, match="float"):
        KNOWN.recipe(0.5)  # type: ignore[arg-type]


def test_the_error_names_the_newest_release_before_it() -> None:
    with pytest.raises(InputValueError, match=r"knows .*; the newest before it is 0\.33\.0"):
        engines.parse("vllm@0.34.0")
    with pytest.raises(InputValueError, match=r"knows [^;]*$"):
        engines.find("vllm@0.17.0", or_older=True)


@given(numbers=st.lists(st.integers(0, 40), min_size=2, max_size=4))
def test_an_older_release_is_the_newest_known_one(numbers: list[int]) -> None:
    version = ".".join(map(str, numbers))
    for engine in ENGINES:
        try:
            found = engine.releases.resolve(version, or_older=True)
        except InputValueError:
            found = None
        known = [release for release in engine.releases if _parse(release.first) <= _parse(version)]
        if found is None:
            assert not known
        else:
            assert _parse(found) <= _parse(version)
            assert engine.releases.recipe(found) == known[-1].recipe
