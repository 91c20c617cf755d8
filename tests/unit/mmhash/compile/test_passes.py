import torch
from torch import Tensor
from torch.fx import Graph, GraphModule

import mmhash.ops
from mmhash.compile import DropDeadDigest, PassManager

DIGEST = torch.ops.mmhash.digest.default


def graph_with(read: bool) -> GraphModule:
    graph = Graph()
    x = graph.placeholder("x")
    hashed = graph.call_function(DIGEST, (x,))
    graph.call_function(torch.ops.mmhash.digests.default, ([x, x],))
    graph.output((x, hashed) if read else (x,))
    return GraphModule(torch.nn.Module(), graph)


def targets(module: GraphModule) -> list[object]:
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def test_a_digest_that_nobody_reads_is_taken_out() -> None:
    manager = PassManager([DropDeadDigest()])
    module = manager(graph_with(read=False))
    assert targets(module) == []
    (row,) = manager.last_report().rows
    assert (row.matches, row.nodes_before, row.nodes_after) == (2, 4, 2)
    x = torch.ones(3)
    assert module(x)[0] is x


def test_a_digest_that_is_read_stays() -> None:
    manager = PassManager([DropDeadDigest()])
    module = manager(graph_with(read=True))
    assert targets(module) == [DIGEST]
    assert manager.last_report().matches("drop_dead_digest") == 1
    x: Tensor = torch.ones(3)
    assert bytes(module(x)[1].tolist()) == mmhash.digest(x).bytes
