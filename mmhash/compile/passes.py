"""The base class of passes over a graph."""

from abc import ABC, abstractmethod

from torch.fx import GraphModule


class Pass(ABC):
    """A pass that rewrites a graph; reports and warnings show its name."""

    name: str

    @abstractmethod
    def __call__(self, graph_module: GraphModule) -> int:
        """Rewrite the graph; return the number of changed places."""
