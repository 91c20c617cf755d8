from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmhash import InputTypeError, InputValueError
from mmhash.engines import cbor

EDGES = [0, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**62, 2**64 - 1]
NATURALS = st.sampled_from(EDGES) | st.integers(0, 2**64 - 1)
PLAIN = st.recursive(
    st.none()
    | st.integers(-(2**64), 2**64 - 1)
    | st.sampled_from([-24, -25, -256, -257, -(2**64)])
    | st.binary(max_size=300)
    | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=30) | st.lists(inner, max_size=3).map(tuple),
)


def canonical(value: Any) -> bytes:
    return cbor2.dumps(value, canonical=True)


@given(PLAIN)
def test_dumps(value: Any) -> None:
    assert cbor.dumps(value) == canonical(value)


@pytest.mark.parametrize("value", [b"\0" * 70_000, "é" * 70_000, [None] * 70_000], ids=type)
def test_long_values(value: Any) -> None:
    assert cbor.dumps(value) == canonical(value)


def test_an_encoded_value_is_inserted_unchanged() -> None:
    inner = cbor.Encoded(cbor.dumps([1, 2]))
    assert cbor.dumps((b"a", inner, None)) == canonical((b"a", [1, 2], None))


@given(st.lists(NATURALS, max_size=80), st.sampled_from([1, 2, 7, 16, 24, 300]))
def test_int_arrays(numbers: list[int], length: int) -> None:
    runs = [numbers[at : at + length] for at in range(0, len(numbers), length)]
    whole = [run for run in runs if len(run) == length]
    assert cbor.int_arrays(numbers, length) == [canonical(run) for run in whole]


@pytest.mark.parametrize("value", [True, 1.5, {}, {1}, object, [1, [True]]], ids=repr)
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(InputTypeError, match="a block key cannot hold"):
        cbor.dumps(value)


@pytest.mark.parametrize("value", [2**64, -(2**64) - 1, "\ud800"], ids=["large", "small", "text"])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(InputValueError, match="a block key can"):
        cbor.dumps(value)
