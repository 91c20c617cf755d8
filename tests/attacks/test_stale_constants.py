"""A constant that is written to after it was made, so that a fused call normalises by its old value.

A number in a tensor is known only if nothing else reads that tensor, and what is written is not fused.
"""

# ruff: noqa: ARG005  (each write takes what any of them needs)

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import mmhash
from mmhash import ops
from mmhash.compile import Backend, PassManager

NAME = "fuse_normalize_digest"
PIXELS = torch.arange(2 * 3 * 4 * 4).remainder(256).to(torch.uint8).view(2, 3, 4, 4)
MEAN = torch.tensor([0.48, 0.46, 0.41]).view(3, 1, 1)
STD = torch.tensor([0.27, 0.26, 0.28]).view(3, 1, 1)

Write = Callable[[Tensor], Any]

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@torch.library.custom_op("mmhash_attacks::write", mutates_args=("x",))
def write(x: Tensor) -> None:
    x.fill_(3.0)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


def of_dynamo(program: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(program, backend=Backend(PassManager(), "eager"))  # type: ignore[no-any-return]


def of_export(program: Callable[..., Any]) -> Callable[..., Any]:
    class Model(torch.nn.Module):
        def forward(self, p: Tensor, m: Tensor, s: Tensor) -> Any:
            return program(p, m, s)

    module = torch.export.export(Model(), inputs()).module()
    return PassManager()(module)


def of_trace(model: torch.nn.Module) -> Callable[..., Any]:
    tracer = torch.fx.Tracer()
    tracer.proxy_buffer_attributes = True
    graph = tracer.trace(model)
    return PassManager()(torch.fx.GraphModule(model, graph), (PIXELS,))


def inputs() -> tuple[Tensor, ...]:
    return PIXELS.clone(), MEAN.clone(), STD.clone()


def keys(program: Callable[..., Any]) -> list[mmhash.Digest]:
    given = inputs()
    torch.manual_seed(0)
    return [mmhash.key(value.detach().clone()) for value in (*program(*given), *given)]


def assign(t: Tensor) -> None:
    t[...] = 3.0


def assign_data(t: Tensor) -> None:
    t.data = torch.tensor(3.0)


def add_in_place(t: Tensor) -> None:
    t += 1


def multiply_in_place(t: Tensor) -> None:
    t *= 4


def outside_of_the_graph(t: Tensor) -> None:
    torch.compiler.disable(t.fill_)(3.0)


WRITES: list[Write] = [
    lambda t: t.fill_(3.0),
    lambda t: t.mul_(2),
    lambda t: t.copy_(torch.tensor(3.0)),
    lambda t: t.zero_().add_(2),
    lambda t: t.normal_().abs_().add_(1),
    lambda t: t.set_(torch.tensor(3.0)),
    lambda t: t.view(1).index_fill_(0, torch.tensor([0]), 3.0),
    lambda t: t.unsqueeze(0).index_put_((torch.tensor([0]),), torch.tensor(3.0)),
    assign,
    add_in_place,
    multiply_in_place,
    assign_data,
    lambda t: t.__setitem__((), 3.0),
    lambda t: operator.setitem(t, ..., 3.0),
    lambda t: operator.iadd(t, 1),
    lambda t: torch.add(t, 1, out=t),
    lambda t: torch.fill_(t, 3.0),
    lambda t: torch._foreach_add_([t], 1.0),
    lambda t: torch._foreach_copy_([t], [torch.tensor(3.0)]),
    lambda t: functional.relu(t.neg_(), inplace=True).add_(2),
    lambda t: torch.ops.aten.fill_.Scalar(t, 3.0),
    lambda t: torch.ops.aten.add.out(t, 1, out=t),
    write,
    torch.ops.mmhash_attacks.write.default,
    outside_of_the_graph,
]
VIEWS: list[Callable[[Tensor], Tensor]] = [
    lambda t: t,
    lambda t: t.view(1),
    lambda t: t.view(1)[0:1],
    lambda t: t.expand(1),
    lambda t: t.detach(),
    lambda t: t.data,
    lambda t: t.unsqueeze(0).unbind()[0],
    lambda t: torch.as_strided(t, (1,), (1,)),
    torch.atleast_1d,
    lambda t: +t,
]


@pytest.mark.parametrize("write_to", WRITES)
def test_a_scale_that_is_written(write_to: Write) -> None:
    def program(p: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        t = torch.tensor(0.5)
        write_to(t)
        features = (p.float() * t - m) / s
        return features, ops.digest(features, dim=0)

    expected = keys(program)
    assert keys(of_dynamo(program)) == expected
    if write_to is not assign_data:  # torch.export leaves that out
        assert keys(of_export(program)) == expected


@pytest.mark.parametrize("view_of", VIEWS)
def test_a_scale_that_is_written_through_an_alias(view_of: Callable[[Tensor], Tensor]) -> None:
    def program(p: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        t = torch.tensor(0.5)
        alias = view_of(t)
        alias.fill_(3.0)
        features = p.float().mul_(t).sub_(m).div_(s)
        return features, ops.digest(features, dim=0), alias.sum()

    check(program)


@pytest.mark.parametrize(
    "write_to",
    [
        lambda p, m, s: m.add_(1),
        lambda p, m, s: m.data.add_(1),
        lambda p, m, s: s.view(-1)[1:].mul_(2),
        lambda p, m, s: p.unbind()[0].fill_(7),
        lambda p, m, s: torch.batch_norm(
            p.float(), None, None, m.view(-1), s.view(-1), True, 0.1, 1e-5, False
        ),
        lambda p, m, s: torch.nn.functional.embedding(
            torch.tensor([0]), m.view(1, 3), max_norm=0.01
        ),
        lambda p, m, s: torch._foreach_mul_([m, s], 2.0),
        lambda p, m, s: p.transpose_(0, 1).transpose_(0, 1),
    ],
)
@pytest.mark.parametrize("when", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_pixels_mean_and_std_that_are_written(write_to: Callable[..., Any], when: int) -> None:
    def program(p: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        if when == 0:
            write_to(p, m, s)
        cast = p.float()
        if when == 1:
            write_to(p, m, s)
        centred = cast - m
        if when == 2:
            write_to(p, m, s)
        features = centred / s
        if when == 3:
            write_to(p, m, s)
        return features, ops.digest(features, dim=0)

    check(program)


def test_a_shape_that_changes_after_the_digest() -> None:
    """The graph shows one shape of each tensor: the last."""

    def program(p: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        features = (p.float() - m) / s
        digests = ops.digest(features, dim=0)
        p.resize_(2, 3, 2, 2)
        m.squeeze_()
        return features, digests

    check(program)


def test_buffers_that_the_module_writes() -> None:
    class Normalize(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", MEAN.clone())
            self.register_buffer("std", STD.clone())
            self.register_buffer("scale", torch.tensor(0.5))

        def forward(self, p: Tensor) -> tuple[Tensor, ...]:
            features = (p.float() * self.scale - self.mean) / self.std
            digests = ops.digest(features, dim=0)
            self.mean.add_(1)
            self.scale.mul_(2)
            return features, digests

    makers: list[Callable[[torch.nn.Module], Callable[..., Any]]] = [
        of_dynamo,
        lambda model: PassManager()(torch.export.export(model, (PIXELS,)).module()),
        of_trace,
    ]
    for compiled in makers:
        plain, model = Normalize(), compiled(Normalize())
        for _ in range(3):
            expected, found = plain(PIXELS), model(PIXELS)
            assert list(map(mmhash.key, found)) == list(map(mmhash.key, expected))


def test_what_nothing_else_reads_is_fused_still() -> None:
    def program(p: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        features = (p.float() * torch.tensor(0.5) - m) / s
        digests = ops.digest(features, dim=0)
        functional.relu(features, inplace=True)
        return features, digests

    backend = Backend(PassManager(), "eager")
    assert keys(torch.compile(program, backend=backend)) == keys(program)
    assert backend.manager.last_report().matches(NAME) == 1


def check(program: Callable[..., Any]) -> None:
    assert keys(of_dynamo(program)) == keys(program)
