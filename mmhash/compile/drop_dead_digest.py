"""A pass that removes digests without a reader."""

from torch.fx import GraphModule

from mmhash.compile.nodes import DIGEST, DIGESTS
from mmhash.compile.passes import Pass


class DropDeadDigest(Pass):
    """Remove calls of `mmhash::digest` and `mmhash::digests` whose result has no reader."""

    name = "drop_dead_digest"

    def __call__(self, graph_module: GraphModule) -> int:
        """Return the number of removed calls."""
        graph = graph_module.graph
        dead = [node for node in graph.nodes if node.target in {DIGEST, DIGESTS} and not node.users]
        for node in dead:
            graph.erase_node(node)
        return len(dead)
