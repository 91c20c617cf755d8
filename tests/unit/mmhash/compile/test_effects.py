"""Nodes that only read are those of a list; the list holds no function that writes."""

import math
import operator
from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.nn import functional

from mmhash.compile.effects import may_write, storages_of, written_storages
from mmhash.compile.nodes import DIGEST, DIGESTS

aten = torch.ops.aten
X = torch.arange(6.0).view(2, 3)


def call(target: str | Callable[..., object], *args: object, **kwargs: object) -> Node:
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = X
    make = graph.call_method if isinstance(target, str) else graph.call_function
    return make(target, (x, *args), kwargs)  # type: ignore[arg-type]


@torch.library.custom_op("mmhash_tests::unlisted", mutates_args=())
def unlisted(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@pytest.mark.parametrize(
    "node",
    [
        call("add_", 1), call("copy_", 1), call("__setitem__", 0, 1), call("set_"),
        call("resize_", 1), call("t_"), call("requires_grad_"), call("normal_"), call("backward"),
        call("as_strided", 1, 1, 0), call("sum", out=1), call("untyped_storage"),
        call("storage_offset"), call("data_ptr"), call(getattr, "data"), call(getattr, "_base"),
        call(operator.iadd, 1), call(operator.imul, 1), call(operator.setitem, 0, 1),
        call(operator.delitem, 0), call(setattr, "data", 1),
        call(torch.relu_), call(torch.add, 1, out=1), call(torch.add, 1, out=None),
        call(torch.batch_norm), call(torch.instance_norm), call(torch.native_batch_norm),
        call(torch.batch_norm_gather_stats), call(torch.batch_norm_update_stats),
        call(torch.embedding_renorm_), call(torch._foreach_add_, 1), call(torch.rrelu),
        call(torch.as_strided, 1, 1, 0), call(torch.Tensor.set_, 1), call(torch.Tensor.add_, 1),
        call(torch.vmap), call(torch._assert, "x"), call(lambda x: x),
        call(functional.relu, True), call(functional.dropout, inplace=True), call(functional.batch_norm), call(functional.embedding),
        call(functional.interpolate, inplace=True), call(math.sin),
        call(aten.add_.Tensor, 1), call(aten.add.out, 1, out=1), call(aten.set_.source_Tensor),
        call(aten.batch_norm.default), call(aten.native_batch_norm.default),
        call(aten.instance_norm.default), call(aten._batch_norm_impl_index.default),
        call(aten._native_batch_norm_legit.default), call(aten.embedding_renorm_.default),
        call(aten._foreach_add_.Scalar, 1), call(aten.as_strided.default), call(aten.add, 1),
        call(torch.ops.mmhash_tests.unlisted.default),
        call(torch.ops.higher_order.auto_functionalized_v2), call(torch.ops.higher_order.cond),
    ],
)  # fmt: skip
def test_calls_that_may_write(node: Node) -> None:
    assert may_write(node)


@pytest.mark.parametrize(
    "node",
    [
        call("add", 1), call("view", 6), call("size"), call(getattr, "T"),
        call(operator.add, 1), call(operator.getitem, 0), call(operator.invert),
        call(torch.add, 1), call(torch.tensor), call(torch.nn.functional.interpolate),
        call(torch.empty_like), call(functional.linear), call(functional.layer_norm),
        call(aten.add.Tensor, 1), call(aten.sum.dim_IntList), call(aten.lift_fresh_copy.default),
        call(aten._assert_tensor_metadata.default), call(DIGEST), call(DIGESTS),
        call(torch.ops.prims.convert_element_type.default), call("add", 1).args[0],
    ],
)  # fmt: skip
def test_calls_that_write_nothing(node: Node) -> None:
    assert not may_write(node)


@pytest.mark.parametrize("target", ["add", operator.add, getattr])
def test_a_method_of_an_unknown_value_may_write(target: str | Callable[..., object]) -> None:
    node = call(target, 1)
    del node.all_input_nodes[0].meta["val"]
    assert may_write(node)


def test_a_module_may_write() -> None:
    graph = Graph(torch.nn.Sequential(torch.nn.ReLU(inplace=True)))
    assert may_write(graph.call_module("0", (graph.placeholder("x"),)))


def test_the_guards_of_an_exported_module_do_not() -> None:
    class Add(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    module = torch.export.export(Add(), (X,)).module()
    assert not any(map(may_write, module.graph.nodes))


def test_a_written_storage_is_that_of_all_views() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        view = x[0].view(-1)
        torch._foreach_add_([view], 1)
        return x + y

    module = torch.fx.symbolic_trace(model)
    FakeTensorProp(module).propagate(X.clone(), X.clone())
    x, y, *_ = module.graph.nodes
    written = written_storages(module.graph)
    assert written == set(storages_of(x))
    assert written.isdisjoint(storages_of(y))
