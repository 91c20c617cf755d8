"""Writes that a merged digest is moved across, so that it is of other content than the caller hashed.

A digest waits only across functions of an explicit list, none of which writes, and every other parts them.
"""

# ruff: noqa: ARG005  (each write takes what any of them needs)

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import mmhash
from mmhash import ops
from mmhash.compile import Backend, PassManager

NAME = "merge_digests"
aten = torch.ops.aten
FEATURES = torch.arange(2 * 4 * 3 * 3.0).view(2, 4, 3, 3) / 8 + 0.25

# Features, and running statistics: two rows of four.
Write = Callable[[Tensor, Tensor], Any]

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@torch.library.custom_op("mmhash_attacks::bump", mutates_args=("x",))
def bump(x: Tensor) -> None:
    x.add_(1)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


def norm(x: Tensor, r: Tensor) -> Any:
    return torch.batch_norm(x, None, None, r[0], r[1], True, 0.1, 1e-5, False)


class Norm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        mean, var = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert var is not None
        before = ops.digest(mean[:2])
        self.norm(x)
        return before, ops.digest(mean[2:]), ops.digest(mean), ops.digest(var)


def fused_adam(x: Tensor, r: Tensor) -> Any:
    zeros = [torch.zeros_like(r)]
    torch._fused_adam_(
        [r], [r.clone()], zeros, [torch.zeros_like(r)], [], [torch.ones(())], lr=0.1, beta1=0.9,
        beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip


def set_data(x: Tensor, r: Tensor) -> None:
    r.data = r + 1


WRITES: list[Write] = [
    norm,
    lambda x, r: torch.native_batch_norm(x, None, None, r[0], r[1], True, 0.1, 1e-5),
    lambda x, r: torch.instance_norm(x, None, None, r[0], r[1], True, 0.1, 1e-5, False),
    lambda x, r: functional.batch_norm(x, r[0], r[1], training=True),
    lambda x, r: functional.instance_norm(x, r[0], r[1]),
    lambda x, r: torch.batch_norm_update_stats(x, r[0], r[1], 0.5),
    lambda x, r: aten.native_batch_norm.default(x, None, None, r[0], r[1], True, 0.1, 1e-5),
    lambda x, r: aten.batch_norm.default(x, None, None, r[0], r[1], True, 0.1, 1e-5, False),
    lambda x, r: aten._batch_norm_impl_index(x, None, None, r[0], r[1], True, 0.1, 1e-5, False),
    lambda x, r: aten._native_batch_norm_legit(x, None, None, r[0], r[1], True, 0.1, 1e-5),
    lambda x, r: functional.embedding(torch.tensor([0, 1]), r, max_norm=0.1),
    lambda x, r: functional.embedding_bag(torch.tensor([[0, 1]]), r, max_norm=0.1),
    lambda x, r: torch.embedding_renorm_(r, torch.tensor([0, 1]), 0.1, 2.0),
    fused_adam,
    set_data,
    lambda x, r: torch._foreach_add_([r], 1.0),
    lambda x, r: torch._foreach_lerp_([r[0]], [x[0, :, 0, 0]], 0.5),
    lambda x, r: functional.dropout(r, 0.5, True, True),
    lambda x, r: functional.relu(r.sub_(1), inplace=True),
    lambda x, r: functional.hardtanh(r, 0.0, 0.5, True),
    lambda x, r: r.normal_(),
    lambda x, r: r.T.unbind()[0].fill_(9),
    lambda x, r: operator.setitem(r, 0, 9),
    lambda x, r: operator.setitem(r, (slice(None), torch.tensor([1])), 9),
    lambda x, r: operator.imul(r, 2),
    lambda x, r: torch.cumsum(x[0, 0, :2, 0], 0, out=r[0, :2]),
    lambda x, r: torch.Tensor.add_(r, 1),
    lambda x, r: r.apply_(lambda value: value + 1),
    lambda x, r: r.resize_(1, 3),
    lambda x, r: r.set_(x[0, 0]),
    lambda x, r: torch.vmap(lambda row: row.add_(1))(r),
    lambda x, r: torch.vmap(torch.vmap(lambda one: one.mul_(2)))(r),
    lambda x, r: bump(r),
    lambda x, r: aten.index_put_.default(r, [torch.tensor([0])], torch.tensor(7.0)),
]


def digests_around(write: Write) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    def program(x: Tensor, r: Tensor) -> tuple[Tensor, ...]:
        one, two = ops.digest(r[0, :2]), ops.digest(r[0])
        write(x, r)
        three, four = ops.digest(r[0]), ops.digest(r.view(-1)[1:])
        return one, two, three, four

    return program


def keys(program: Callable[..., Any], *given: Tensor) -> list[mmhash.Digest]:
    torch.manual_seed(0)
    return list(map(mmhash.key, program(*given)))


def inputs() -> tuple[Tensor, Tensor]:
    return FEATURES.clone(), torch.ones(2, 4) * 0.75


@pytest.mark.parametrize("write", WRITES)
def test_a_digest_stays_before_the_write(write: Write) -> None:
    program = digests_around(write)
    expected = keys(program, *inputs())
    compiled = torch.compile(program, backend=Backend(PassManager(), "eager"))
    assert keys(compiled, *inputs()) == expected


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES)
def test_a_digest_stays_before_the_write_in_operators(write: Write) -> None:
    """The graph that another compiler would get: of ATen's operators, with writes."""
    program = digests_around(write)
    expected = keys(program, *inputs())
    try:
        module = make_fx(program, tracing_mode="fake")(*inputs())
    except Exception as error:  # noqa: BLE001  (whatever torch raises)
        pytest.skip(f"torch cannot trace it: {type(error).__name__}")
    if keys(module, *inputs()) != expected:
        pytest.skip("torch traces another program")
    assert keys(PassManager()(module), *inputs()) == expected


def test_a_module_in_training() -> None:
    expected = keys(Norm(), FEATURES)
    exported = torch.export.export(Norm(), (FEATURES,)).module()
    for model in (
        torch.compile(Norm(), backend=Backend(PassManager(), "eager")),
        PassManager()(exported),
    ):
        assert keys(model, FEATURES) == expected


@pytest.mark.parametrize(
    "reader",
    [
        lambda d: d.as_strided((4,), (1,), 0),
        lambda d: torch.as_strided(d[4:], (4,), (1,), 0),
        lambda d: d.view(-1).add_(1),
        lambda d: d.resize_(4),
    ],
)
def test_a_digest_that_is_read_by_its_storage(reader: Callable[[Tensor], Tensor]) -> None:
    """The rows of a merged call share one storage; a digest by itself has its own."""

    def program(x: Tensor, r: Tensor) -> tuple[Tensor, ...]:
        found = [ops.digest(part) for part in r]
        return *found, reader(found[1]).clone()

    expected = keys(program, *inputs())
    compiled = torch.compile(program, backend=Backend(PassManager(), "eager"))
    assert keys(compiled, *inputs()) == expected


def test_a_digest_is_still_moved_across_what_only_reads() -> None:
    def program(x: Tensor, r: Tensor) -> tuple[Tensor, ...]:
        one = ops.digest(x[0])
        read = functional.interpolate(x.transpose(0, 1).float(), scale_factor=2).sum().exp()
        return one, ops.digest(x[1]), read

    backend = Backend(PassManager(), "eager")
    compiled = torch.compile(program, backend=backend)
    assert keys(compiled, *inputs()) == keys(program, *inputs())
    assert backend.manager.last_report().matches(NAME) == 1
