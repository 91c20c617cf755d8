"""A graph, a pass that changes it, and passes that go wrong, each in its own way."""

import operator

import torch
from torch.fx import GraphModule

from mmhash.compile import Pass

ADDITIONS = {operator.add, torch.ops.aten.add.Tensor}


def _twice(x: torch.Tensor) -> torch.Tensor:
    return x + x


def traced() -> GraphModule:
    """A graph that adds its input to itself."""
    return torch.fx.symbolic_trace(_twice)


def _additions(module: GraphModule) -> list[torch.fx.Node]:
    return [node for node in module.graph.nodes if node.target in ADDITIONS]


class TimesInstead(Pass):
    """`x + y` becomes `x * by`: a change that is seen."""

    name = "times_instead"

    def __init__(self, by: int = 3) -> None:
        self.by = by

    def __call__(self, graph_module: GraphModule) -> int:
        found = _additions(graph_module)
        for node in found:
            node.target = torch.ops.aten.mul.Tensor
            node.args = (node.args[0], self.by)
        return len(found)


class Raises(Pass):
    """Changes the graph, and then raises."""

    name = "raises"

    def __call__(self, graph_module: GraphModule) -> int:
        for node in _additions(graph_module):
            node.target = operator.sub
        raise RuntimeError("not today\nand a second line")


class Unsound(Pass):
    """Has a node read what comes after it, which lint() sees."""

    name = "unsound"

    def __call__(self, graph_module: GraphModule) -> int:
        graph = graph_module.graph
        (addition,) = _additions(graph_module)
        with graph.inserting_after(addition):
            later = graph.call_function(torch.neg, (addition,))
        addition.args = (later, later)
        return 1
