"""The count of a JSON text's values, against Python's own parser."""

import json

import pytest

from mmhash_service.limits.text import MAX_VALUES, has_many_values

STEP = 1 << 20  # the bytes that are counted at a time


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("text", [b"[%b0]", b" " * (STEP - MAX_VALUES) + b"[%b0]"])
def test_values_are_counted(text: bytes, kind: type[bytes] | type[bytearray]) -> None:
    most = text % (b"0," * (MAX_VALUES - 1))
    assert len(json.loads(most)) == MAX_VALUES
    assert not has_many_values(kind(most))
    assert has_many_values(kind(text % (b"0," * MAX_VALUES)))


@pytest.mark.parametrize("sign", [b",", b":", b"["])
def test_each_sign_before_a_value_counts(sign: bytes) -> None:
    assert not has_many_values(sign * MAX_VALUES)
    assert has_many_values(sign * (MAX_VALUES + 1))


def test_long_texts_are_one_value() -> None:
    assert not has_many_values(b'"' + b"A" * (3 * STEP) + b'"')
