import operator

import torch
from torch.fx import Graph, Node

from mmhash.compile.nodes import number_of, step_of


def test_a_module_of_a_steps_name_is_no_step() -> None:
    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mul = torch.nn.Identity()

    graph = Graph(Holder())
    assert step_of(graph.call_module("mul", (graph.placeholder("x"), 2))) is None


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
