"""Several digests of parts of one tensor become one call, which on a GPU is one launch."""

import operator
from dataclasses import dataclass

from torch.fx import Graph, GraphModule, Node

from mmhash.compile.nodes import DIGESTS, DigestCall, digest_of, may_write, source_of
from mmhash.compile.passes import Pass


@dataclass(frozen=True)
class MergeDigestsConfig:
    """From how many digests on they are merged."""

    at_least: int = 2


class MergeDigests(Pass):
    """Merge the calls of `mmhash::digest` on parts of one tensor into one of `mmhash::digests`.

    A call may wait until its result is read, or until something is met that may write to a tensor:
    there all that wait are merged.
    """

    name = "merge_digests"

    def __init__(self, config: MergeDigestsConfig = MergeDigestsConfig()) -> None:
        self.config: MergeDigestsConfig = config

    def __call__(self, graph_module: GraphModule) -> int:
        """Return how many merged calls there are."""
        matches = 0
        waiting: dict[tuple[Node, str], dict[Node, DigestCall]] = {}
        for node in list(graph_module.graph.nodes):
            written = waiting and may_write(node)
            for of, calls in list(waiting.items()):
                if written or not calls.keys().isdisjoint(node.all_input_nodes):
                    matches += self._merge(graph_module.graph, waiting.pop(of), node)
            call = digest_of(node)
            if call is not None and call.dim is None:
                of = source_of(call.x), call.algorithm
                waiting.setdefault(of, {})[node] = call
        return matches

    def _merge(self, graph: Graph, calls: dict[Node, DigestCall], reader: Node) -> int:
        if len(calls) < self.config.at_least:
            return 0
        parts = [call.x for call in calls.values()]
        algorithm = next(iter(calls.values())).algorithm
        with graph.inserting_before(reader):
            rows = graph.call_function(DIGESTS, (parts,), {"algorithm": algorithm})
            for index, node in enumerate(calls):
                row = graph.call_function(operator.getitem, (rows, index))
                row.meta = node.meta.copy()
                node.replace_all_uses_with(row)
                graph.erase_node(node)
        return 1
