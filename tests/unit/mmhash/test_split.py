from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash import InputError, InputTypeError, InputValueError

ROWS = np.arange(60, dtype=np.float32).reshape(20, 3)


@pytest.mark.parametrize(
    "grids",
    [[[1, 2, 4], [3, 2, 2]], [(2, 4), (6, 2)], np.array([[1, 2, 4], [3, 2, 2]]),
     torch.tensor([[2, 4], [6, 2]]), ((2, 4), np.array([6, 2])), [torch.tensor([2, 4]), [6, 2]]],
)  # fmt: skip
@pytest.mark.parametrize("feature", [ROWS, torch.from_numpy(ROWS)])
def test_grids(feature: object, grids: object) -> None:
    first, second = mmhash.split(feature, grids=grids)
    assert mmhash.keys([first, second]) == mmhash.keys([ROWS[:8].copy(), ROWS[8:].copy()])


@pytest.mark.parametrize("counts", [[8, 12], (8, 12), np.array([8, 12]), torch.tensor([8, 12])])
def test_counts(counts: object) -> None:
    parts = mmhash.split(ROWS, counts=counts)
    assert [part.shape for part in parts] == [(8, 3), (12, 3)]
    assert all(np.shares_memory(part, ROWS) for part in parts)


@pytest.mark.parametrize(
    "options", [{"counts": [5, 5, 5, 5]}, {"grids": [[1, 5]] * 4}, {"grids": torch.tensor([[5, 1, 1]] * 4)}],
)  # fmt: skip
def test_items_of_one_length_have_a_range_of_bounds(options: dict[str, Any]) -> None:
    parts = mmhash.split(ROWS, **options)
    assert parts.bounds == range(0, 21, 5)
    assert [part.shape for part in parts] == [(5, 3)] * 4
    assert mmhash.split(ROWS, counts=[5, 5, 10]).bounds == [0, 5, 10, 20]
    assert list(mmhash.split(ROWS[:0], counts=[0, 0]).bounds) == [0, 0, 0]


@pytest.mark.parametrize("dim", [1, -1])
def test_a_bundle_is_split_along_another_dimension(dim: int) -> None:
    parts = mmhash.split(ROWS, counts=[1, 2], dim=dim)
    assert mmhash.keys(parts) == mmhash.keys([ROWS[:, :1].copy(), ROWS[:, 1:].copy()])


def test_an_item_of_no_rows() -> None:
    assert [part.shape for part in mmhash.split(ROWS, grids=[[4, 5], [0, 4]])] == [(20, 3), (0, 3)]
    assert list(mmhash.split(ROWS[:0], counts=0)) == []
    assert list(mmhash.split(ROWS[:0], grids=np.zeros((0, 3), int))) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [({"grids": [[1, 2, 4]]}, "add up to 8.*20 rows"), ({"counts": [8, 13]}, "21.*20 rows"),
     ({"counts": 19}, "19 items.*20 rows"), ({"counts": 10**18}, "20 rows"),
     ({"grids": [[2**40, 2**40]]}, str(2**80)),
     ({"grids": [[-2, -10]]}, "at least 0, not -2"), ({"counts": [25, -5]}, "-5"), ({"counts": -20}, "-20"),
     ({"grids": [[20]]}, "must have 2 numbers"), ({"grids": [[1, 1, 1, 20]]}, "must have 2 numbers"),
     ({"grids": [[1, 8], [1, 3, 4]]}, "must have 2 numbers"), ({"counts": [8, 12], "dim": 2}, "dim 2"),
     ({"counts": [8, 12], "dim": -3}, "dim -3")],
)  # fmt: skip
def test_bounds_that_do_not_fit_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputValueError, match=words):
        mmhash.split(ROWS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("feature", "options"),
    [(ROWS, {}), (ROWS, {"grids": [[4, 5]], "counts": 20}), (ROWS, {"counts": [20.0]}),
     (ROWS, {"counts": True}), (ROWS, {"counts": [True] * 20}), (ROWS, {"counts": "20"}),
     (ROWS, {"grids": [[4.0, 5.0]]}), (ROWS, {"grids": 20}), (ROWS, {"grids": [20]}),
     ([1, 2], {"counts": 2}), (b"ab", {"counts": 2}), (None, {"counts": 2})],
)  # fmt: skip
def test_arguments_of_other_types_are_refused(feature: object, options: dict[str, object]) -> None:
    with pytest.raises(InputTypeError):
        mmhash.split(feature, **options)  # type: ignore[arg-type]


def test_a_scalar_has_no_rows() -> None:
    with pytest.raises(InputError, match="dim 0"):
        mmhash.split(np.float32(1), counts=1)
