import operator
from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph, Node

from mmhash.compile.nodes import number_of, source_of, step_of

aten = torch.ops.aten


def call(target: str | Callable[..., object], *args: object, **kwargs: object) -> Node:
    graph = Graph()
    x = graph.placeholder("x")
    make = graph.call_method if isinstance(target, str) else graph.call_function
    return make(target, (x, *args), kwargs)  # type: ignore[arg-type]


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


def _scalar(graph: Graph, *args: object, **kwargs: object) -> Node:
    node = graph.call_function(torch.tensor, args, kwargs)  # type: ignore[arg-type]
    node.meta["val"] = torch.tensor(0.5, requires_grad="requires_grad" in kwargs)
    return node


def test_a_number_in_a_tensor_is_known_to_its_only_reader() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    t = _scalar(graph, 0.5)
    graph.call_function(operator.mul, (x, t))
    assert number_of(t) == 0.5
    graph.call_method("detach", (t,))
    assert number_of(t) is None


def test_a_tensor_that_is_trained_or_not_of_a_number_is_not_known() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    for t in (_scalar(graph, 0.5, requires_grad=True), _scalar(graph, data=0.5), _scalar(graph, x)):
        graph.call_function(operator.mul, (x, t))
        assert number_of(t) is None
