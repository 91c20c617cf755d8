"""A pass that merges the digests of parts of one tensor into one call (on a GPU, one launch)."""

import torch
from torch.fx import Graph, GraphModule, Node

from mmhash.compile.nodes import (
    DIGESTS,
    DigestCall,
    add_call,
    aten,
    digest_of,
    nodes_before_writes,
    source_of,
    value_of,
)
from mmhash.compile.passes import Pass
from mmhash.digest import Algorithm

# What calls must have in common to be merged.
_Group = tuple[Node, Algorithm, torch.device]


class MergeDigests(Pass):
    """Merge the calls of `mmhash::digest` on parts of one tensor into one of `mmhash::digests`.

    A call can wait until a node reads its result. All waiting calls are merged there.
    """

    name = "merge_digests"

    def __call__(self, graph_module: GraphModule) -> int:
        """Return the number of merged calls."""
        graph = graph_module.graph
        matches = 0
        waiting: dict[_Group, dict[Node, DigestCall]] = {}
        for node in nodes_before_writes(graph):
            for group, calls in list(waiting.items()):
                if not calls.keys().isdisjoint(node.all_input_nodes):
                    matches += _merge(graph, waiting.pop(group), node)
            call = digest_of(node)
            if call is not None and call.dim is None and (part := value_of(call.x)) is not None:
                group = source_of(call.x), call.algorithm, part.device
                waiting.setdefault(group, {})[node] = call
        for calls in waiting.values():
            matches += _merge(graph, calls, next(reversed(calls)))
        return matches


def _merge(graph: Graph, calls: dict[Node, DigestCall], place: Node) -> int:
    """Merge calls before a node; return 1, or 0 for a single call."""
    if len(calls) < 2:
        return 0
    parts = [call.x for call in calls.values()]
    algorithm = next(iter(calls.values())).algorithm
    with graph.inserting_before(place):
        rows = add_call(graph, DIGESTS, (parts,), {"algorithm": algorithm})
        for index, node in enumerate(calls):
            node.replace_all_uses_with(add_call(graph, aten.select.int, (rows, 0, index)))
    for node in calls:
        graph.erase_node(node)
    return 1
