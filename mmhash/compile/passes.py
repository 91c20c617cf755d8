"""The base class of passes over a graph, and a pass that removes unread digests."""

from abc import ABC, abstractmethod

from torch.fx import GraphModule

from mmhash.compile.nodes import DIGEST, DIGESTS


class Pass(ABC):
    """A pass that rewrites a graph; reports and warnings show its name."""

    name: str

    @abstractmethod
    def __call__(self, graph_module: GraphModule) -> int:
        """Rewrite the graph; return the number of changed places."""


class DropDeadDigest(Pass):
    """Remove calls of `mmhash::digest` and `mmhash::digests` whose result nothing reads."""

    name = "drop_dead_digest"

    def __call__(self, graph_module: GraphModule) -> int:
        """Return the number of removed calls."""
        graph = graph_module.graph
        dead = [node for node in graph.nodes if node.target in {DIGEST, DIGESTS} and not node.users]
        for node in dead:
            graph.erase_node(node)
        return len(dead)
