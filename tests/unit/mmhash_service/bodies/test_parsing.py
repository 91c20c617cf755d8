"""The parsers of untrusted text: what they accept, and their limits."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmhash.dtypes import ITEM_SIZE
from mmhash_service.bodies.parsing import (
    MAX_DIMS,
    parse_dtype,
    parse_media_type,
    parse_shape,
)
from mmhash_service.problems.problem import Problem

BIGGEST = 2**63 - 1


@given(st.lists(st.integers(0, BIGGEST), max_size=MAX_DIMS))
def test_a_shape_is_read_as_it_was_written(shape: list[int]) -> None:
    assert parse_shape(",".join(map(str, shape))) == tuple(shape)


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "1,",
        ",1",
        "1,,2",
        "1, 2",
        "1x2",
        "(1,2)",
        "-1,2",
        "1.0",
        str(2**63),
        ",".join("1" * (MAX_DIMS + 1)),
        "1," * 1_000_000,
        "9" * 1_000_000,
    ],
)
def test_a_malformed_or_endless_shape_is_refused(text: str) -> None:
    with pytest.raises(Problem, match=r"^invalid-tensor$"):
        parse_shape(text)


@given(st.text())
def test_any_text_is_a_shape_or_a_problem(text: str) -> None:
    with suppress(Problem):
        assert len(parse_shape(text)) <= MAX_DIMS


@pytest.mark.parametrize("name", ITEM_SIZE)
def test_every_dtype_with_a_key_is_known(name: str) -> None:
    assert parse_dtype(name) == name


@pytest.mark.parametrize("name", ["", "float", "Float16", "torch.float16", "<f2", "object", "str"])
def test_no_other_dtype_is_known(name: str) -> None:
    with pytest.raises(Problem, match=r"^invalid-tensor$"):
        parse_dtype(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image/png", ("image", "png")),
        ("Image/PNG", ("image", "png")),
        ("image/svg+xml; charset=utf-8", ("image", "svg+xml")),
        ("application/octet-stream;a=b;c=d", ("application", "octet-stream")),
        ("video/mp4 \t; codecs=avc1", ("video", "mp4")),
    ],
)
def test_a_media_type_is_read_without_its_parameters(text: str, expected: tuple[str, str]) -> None:
    assert parse_media_type(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "image",
        "image/",
        "/png",
        "image/png/x",
        "image /png",
        " image/png",
        "image/png x",
        "image/\u0131",
        "i" * 128 + "/png",
        "image/" + "p" * 1_000_000,
    ],
)
def test_a_malformed_media_type_is_refused(text: str) -> None:
    assert parse_media_type(text) is None
