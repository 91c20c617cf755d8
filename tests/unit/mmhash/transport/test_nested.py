"""contains_handles and materialize: what is nested, and a device that is asked for once or never."""

from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from mmhash import InputValueError
from mmhash.transport import SharedTensor, contains_handles, materialize

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


@dataclass(frozen=True)
class Item:
    feature: Any
    grid: Any = None
    later: Any = field(default=None, init=False)


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.fixture
def shared() -> Any:
    with SharedTensor.create(VALUES) as made:
        yield made


NESTED = [
    lambda x: x,
    lambda x: [1, x],
    lambda x: (1, [x]),
    lambda x: {"a": 1, "b": {"c": x}},
    Item,
    lambda x: [Item([{"x": (x,)}], grid=7)],
    lambda x: Pair("first", x),
]


@pytest.mark.parametrize("nest", NESTED)
def test_a_handle_is_found_and_replaced(nest: Any, shared: Any) -> None:
    held = nest(shared[1:])
    assert contains_handles(held)
    asked = []
    made = materialize([held, nest(shared)], lambda: asked.append(1) or "cpu")  # type: ignore[func-returns-value]
    assert asked == [1]
    assert not contains_handles(made)
    assert contains_handles(held)  # what was given stays as it was
    assert repr(made) == repr([nest(torch.from_numpy(VALUES)[1:]), nest(torch.from_numpy(VALUES))])
    assert type(made[0]) is (
        torch.Tensor if held is not made and isinstance(held, SharedTensor) else type(held)
    )


@pytest.mark.parametrize("nest", NESTED)
def test_without_one_nothing_is_asked_or_copied(nest: Any) -> None:
    held = nest(VALUES)
    assert not contains_handles(held)
    assert materialize(held, lambda: pytest.fail("asked")) is held


def test_parts_without_a_handle_stay_the_same_objects(shared: Any) -> None:
    kept = {"a": [VALUES]}
    assert materialize([kept, shared], "cpu")[0] is kept


def test_too_deep_is_refused() -> None:
    held: Any = []
    held.append(held)
    with pytest.raises(InputValueError, match="deeper"):
        contains_handles(held)


def test_a_classic_named_tuple(shared: Any) -> None:
    classic = namedtuple("classic", "x")  # noqa: PYI024  (engines have such)
    assert torch.equal(
        materialize(classic(shared), torch.device("cpu")).x, torch.from_numpy(VALUES)
    )
