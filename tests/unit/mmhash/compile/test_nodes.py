import operator
from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph, Node

from mmhash.compile import nodes
from mmhash.compile.nodes import copy_of, may_write, source_of, step_of

aten = torch.ops.aten


def call(target: str | Callable[..., object], *args: object, **kwargs: object) -> Node:
    graph = Graph()
    x = graph.placeholder("x")
    make = graph.call_method if isinstance(target, str) else graph.call_function
    return make(target, (x, *args), kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "node",
    [
        call("add_", 1), call("copy_", 1), call("__setitem__", 0, 1), call(operator.iadd, 1),
        call(operator.setitem, 0, 1), call(torch.relu_), call(torch.add, 1, out=1),
        call("sum", out=1), call(aten.add_.Tensor, 1), call(aten.add.out, 1, out=1),
        call(torch.nn.functional.relu, True), call(lambda x: x),
    ],
)  # fmt: skip
def test_what_may_write(node: Node) -> None:
    assert may_write(node)


@pytest.mark.parametrize(
    "node",
    [
        call("add", 1), call(operator.add, 1), call(operator.getitem, 0), call(torch.add, 1),
        call(aten.add.Tensor, 1), call(nodes.DIGEST), call(torch.tensor),
        call(aten._assert_tensor_metadata.default), call("add", 1).args[0],
    ],
)  # fmt: skip
def test_what_does_not(node: Node) -> None:
    assert not may_write(node)


def test_a_module_may_write() -> None:
    graph = Graph(torch.nn.Sequential(torch.nn.ReLU(inplace=True)))
    assert may_write(graph.call_module("0", (graph.placeholder("x"),)))


@pytest.mark.parametrize(
    ("node", "name", "operand"),
    [
        (call("mul_", 2.0), "mul", 2.0),
        (call(torch.sub, 1), "sub", 1),
        (call(operator.itruediv, 3), "div", 3),
        (call("to", torch.half), "cast", torch.half),
        (call("to", dtype=torch.half), "cast", torch.half),
        (call("half"), "cast", torch.half),
        (call(aten._to_copy.default, dtype=torch.half), "cast", torch.half),
    ],
)
def test_a_step_in_each_spelling(node: Node, name: str, operand: object) -> None:
    assert step_of(node) == (name, node.args[0], operand)


@pytest.mark.parametrize(
    "node",
    [
        call("to", "cpu"), call("to", torch.half, True), call("to", dtype=torch.half, copy=True),
        call("to", dtype=torch.half, memory_format=torch.channels_last), call("half", True),
        call(torch.sub, 1, alpha=2), call(torch.div, 2, rounding_mode="floor"), call("abs"),
        call(torch.pow, 2), call("add", 1).args[0],
    ],
)  # fmt: skip
def test_what_is_no_step(node: Node) -> None:
    assert step_of(node) is None


def test_a_module_of_a_steps_name_is_no_step() -> None:
    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mul = torch.nn.Identity()

    graph = Graph(Holder())
    assert step_of(graph.call_module("mul", (graph.placeholder("x"), 2))) is None


def test_the_source_of_a_part() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    part = graph.call_method("split", (x, 2))
    part = graph.call_function(operator.getitem, (part, 1))
    part = graph.call_function(aten.select.int, (part, 0, 1))
    assert source_of(part) is x
    assert source_of(graph.call_function(torch.neg, (part,))) is not x


def test_a_copy_has_what_was_set_on_the_nodes() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    x._of_dynamo = "kept"  # type: ignore[attr-defined]
    graph.output(x)
    twin = copy_of(graph)
    first = next(iter(twin.nodes))
    assert first is not x
    assert first._of_dynamo == "kept"
    assert first.graph is twin
