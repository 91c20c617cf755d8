"""Numbers in headers, and the count of values in JSON, compared with Python's own parsers."""

import json

import pytest

from mmhash_service.limits.text import MAX_VALUES, has_many_values, parse_natural

STEP = 1 << 20  # the bytes that are counted at a time


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("text", [b"[%b0]", b" " * (STEP - MAX_VALUES) + b"[%b0]"])
def test_values_are_counted(text: bytes, kind: type[bytes] | type[bytearray]) -> None:
    most = text % (b"0," * (MAX_VALUES - 1))
    assert len(json.loads(most)) == MAX_VALUES
    assert not has_many_values(kind(most))
    assert has_many_values(kind(text % (b"0," * MAX_VALUES)))


@pytest.mark.parametrize("sign", [b",", b":", b"["])
def test_each_separator_counts_as_a_value(sign: bytes) -> None:
    assert not has_many_values(sign * MAX_VALUES)
    assert has_many_values(sign * (MAX_VALUES + 1))


def test_long_texts_are_one_value() -> None:
    assert not has_many_values(b'"' + b"A" * (3 * STEP) + b'"')


@pytest.mark.parametrize("number", [0, 1, 9, 10, 2**53 + 1, 2**63 - 1])
def test_a_natural_number_is_read(number: int) -> None:
    assert parse_natural(str(number)) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1\n",
        "+1",
        "-1",
        "1.0",
        "1e3",
        "0x10",
        "1_000",
        "٣",
        "²",
        str(2**63),
        "0" * 20,
    ],
)
def test_other_texts_are_not_natural_numbers(text: str) -> None:
    assert parse_natural(text) is None
