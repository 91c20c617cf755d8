"""A pass that merges the digests of parts of one tensor into one call (on a GPU, one launch)."""

import operator

import torch
from torch.fx import Graph, GraphModule, Node

from mmhash.compile.effects import may_write, storages_of, written_storages
from mmhash.compile.nodes import DIGEST, DIGESTS, DigestCall, digest_of, source_of, value_of
from mmhash.compile.passes import Pass
from mmhash.digest import Algorithm

# What calls must have in common to be merged.
_Group = tuple[Node, Algorithm, torch.device]


class MergeDigests(Pass):
    """Merge the calls of `mmhash::digest` on parts of one tensor into one of `mmhash::digests`.

    A call can wait until a node reads its result or may write to a tensor. All waiting calls are
    merged there. A digest that a node may write to stays a separate call, because the rows of
    merged digests share a storage.
    """

    name = "merge_digests"

    def __call__(self, graph_module: GraphModule) -> int:
        """Return the number of merged calls."""
        graph = graph_module.graph
        nodes = list(graph.nodes)
        if sum(node.target is DIGEST for node in nodes) < 2:
            return 0
        written = written_storages(graph)
        matches = 0
        waiting: dict[_Group, dict[Node, DigestCall]] = {}
        for node in nodes:
            is_writer = bool(waiting) and may_write(node)
            for group, calls in list(waiting.items()):
                if is_writer or not calls.keys().isdisjoint(node.all_input_nodes):
                    matches += _merge(graph, waiting.pop(group), node)
            call = digest_of(node)
            if call is None or call.dim is not None or not written.isdisjoint(storages_of(node)):
                continue
            if (part := value_of(call.x)) is not None:
                group = source_of(call.x), call.algorithm, part.device
                waiting.setdefault(group, {})[node] = call
        return matches


def _merge(graph: Graph, calls: dict[Node, DigestCall], reader: Node) -> int:
    """Merge calls before the node that reads one of their results.

    Return 1, or 0 for a single call.
    """
    if len(calls) < 2:
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
