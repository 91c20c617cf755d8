from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mmhash import ops
from mmhash.compile import Backend, MergeDigests, PassManager

X = torch.arange(48, dtype=torch.float32).view(4, 3, 4)

Model = Callable[[Tensor], tuple[Tensor, ...]]


def run(model: Model, then: str = "eager") -> tuple[int, int]:
    """Compile and compare with eager; how many calls there are of the batched kind, and how many nodes less."""
    backend = Backend(PassManager([MergeDigests()]), then)
    found = torch.compile(model, backend=backend, fullgraph=True)(X.clone())
    for one, other in zip(found, model(X.clone()), strict=True):
        assert torch.equal(one, other)
    (row,) = backend.manager.last_report().rows
    return row.matches, row.nodes_after - row.nodes_before


def by_index(x: Tensor) -> tuple[Tensor, ...]:
    return ops.digest(x[0]), ops.digest(x[1]), ops.digest(x[2:])


def by_split(x: Tensor) -> tuple[Tensor, ...]:
    one, two = x.split([1, 3])
    return ops.digest(one), ops.digest(two)


def by_unbind(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(ops.digest(part) for part in x.unbind())


def by_select_and_narrow(x: Tensor) -> tuple[Tensor, ...]:
    return ops.digest(x.select(0, 1)), ops.digest(x.narrow(0, 1, 2)), ops.digest(x)


def by_view_of_a_view(x: Tensor) -> tuple[Tensor, ...]:
    return ops.digest(x[0][1]), ops.digest(torch.chunk(x, 2)[1])


def stacked(x: Tensor) -> tuple[Tensor, ...]:
    return (torch.stack([ops.digest(part, algorithm="xxh3") for part in x]),)


@pytest.mark.parametrize(
    "model", [by_split, by_unbind, by_select_and_narrow, by_view_of_a_view, stacked]
)
def test_parts_of_one_tensor_are_one_call(model: Model) -> None:
    # One call for all, and a row of it for each: one node more.
    assert run(model) == (1, 1)


def test_either_compiler_takes_the_one_call(then: str) -> None:
    assert run(by_index, then) == (1, 1)


def of_two_tensors(x: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    return ops.digest(x[0]), ops.digest(y[0])


def by_two_algorithms(x: Tensor) -> tuple[Tensor, ...]:
    return ops.digest(x[0]), ops.digest(x[1], algorithm="xxh3")


def one_alone(x: Tensor) -> tuple[Tensor, ...]:
    return ops.digest(x[0]), ops.digest(x, dim=0)


def read_before_the_next(x: Tensor) -> tuple[Tensor, ...]:
    first = ops.digest(x[0])
    return first, ops.digest(x[1] + first.sum())


@pytest.mark.parametrize(
    "model", [of_two_tensors, by_two_algorithms, one_alone, read_before_the_next]
)
def test_other_digests_are_left_alone(model: Model) -> None:
    assert run(model) == (0, 0)


def test_a_write_between_two_digests_keeps_them_apart() -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        before = [ops.digest(x[0]), ops.digest(x[1])]
        x.add_(1)
        return (*before, ops.digest(x[0]), ops.digest(x[1]))

    assert run(model) == (2, 2)


def test_two_tensors_are_two_calls() -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return ops.digest(x[0]), ops.digest(y[0]), ops.digest(x[1]), ops.digest(y[1])

    assert run(model) == (2, 2)
