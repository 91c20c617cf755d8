import operator
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import mmhash
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
    "model", [by_index, by_split, by_unbind, by_select_and_narrow, by_view_of_a_view, stacked]
)
def test_parts_of_one_tensor_are_one_call(model: Model, then: str) -> None:
    # One call for all, and a row of it for each: one node more.
    assert run(model, then) == (1, 1)


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
def test_others_are_left_alone(model: Model) -> None:
    assert run(model) == (0, 0)


def test_a_write_between_parts_them() -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        before = [ops.digest(x[0]), ops.digest(x[1])]
        x.add_(1)
        return (*before, ops.digest(x[0]), ops.digest(x[1]))

    assert run(model) == (2, 2)


@torch.library.custom_op("mmhash_tests::bump", mutates_args=("x",))
def bump(x: Tensor) -> None:
    x.add_(1)


def fused_adam(r: Tensor) -> None:
    zeros = [torch.zeros_like(r)]
    torch._fused_adam_(
        [r], [r.clone()], zeros, [torch.zeros_like(r)], [], [torch.ones(())], lr=0.1, beta1=0.9,
        beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip


# Running statistics, two rows of four, and what writes them without saying so in its name.
FEATURES = torch.arange(2 * 4 * 3 * 3.0).view(2, 4, 3, 3) / 8 + 0.25
WRITES: dict[str, Callable[[Tensor], object]] = {
    "batch_norm": lambda r: torch.batch_norm(
        FEATURES, None, None, r[0], r[1], True, 0.1, 1e-5, False
    ),
    "functional.batch_norm": lambda r: functional.batch_norm(FEATURES, r[0], r[1], training=True),
    "instance_norm": lambda r: functional.instance_norm(FEATURES, r[0], r[1]),
    "batch_norm_update_stats": lambda r: torch.batch_norm_update_stats(FEATURES, r[0], r[1], 0.5),
    "embedding": lambda r: functional.embedding(torch.tensor([0, 1]), r, max_norm=0.1),
    "embedding_bag": lambda r: functional.embedding_bag(torch.tensor([[0, 1]]), r, max_norm=0.1),
    "fused_adam": fused_adam,
    "foreach": lambda r: torch._foreach_lerp_([r[0]], [FEATURES[0, :, 0, 0]], 0.5),
    "inplace": lambda r: functional.hardtanh(r, 0.0, 0.5, True),
    "a view": lambda r: r.T.unbind()[0].fill_(9),
    "setitem": lambda r: operator.setitem(r, (slice(None), torch.tensor([1])), 9),
    "out": lambda r: torch.cumsum(FEATURES[0, 0, :2, 0], 0, out=r[0, :2]),
    "resize": lambda r: r.resize_(1, 3),
    "set": lambda r: r.set_(FEATURES[0, 0]),
    "vmap": torch.vmap(lambda row: row.add_(1)),
    "a custom operator": bump,
    "aten": lambda r: torch.ops.aten.index_put_.default(r, [torch.tensor([0])], torch.tensor(7.0)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_digest_stays_before_any_write(write: Callable[[Tensor], object]) -> None:
    def model(r: Tensor) -> tuple[Tensor, ...]:
        before = [ops.digest(r[0, :2]), ops.digest(r[0])]
        write(r)
        return (*before, ops.digest(r[0]), ops.digest(r.view(-1)[1:]))

    expected = [mmhash.key(one) for one in model(torch.ones(2, 4) * 0.75)]
    compiled = torch.compile(model, backend=Backend(PassManager(), "eager"))
    assert [mmhash.key(one) for one in compiled(torch.ones(2, 4) * 0.75)] == expected


def test_two_tensors_are_two_calls() -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return ops.digest(x[0]), ops.digest(y[0]), ops.digest(x[1]), ops.digest(y[1])

    assert run(model) == (2, 2)
