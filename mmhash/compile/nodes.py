"""The meaning of the nodes in a graph of ATen operators, and calls that replace them."""

import operator
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

import mmhash.ops  # noqa: F401  (registers the operators)
from mmhash.digest import Algorithm, check_algorithm

aten = torch.ops.aten

DIGEST = torch.ops.mmhash.digest.default
DIGESTS = torch.ops.mmhash.digests.default
NORMALIZE_DIGEST = torch.ops.mmhash.normalize_digest.default

_STEPS: dict[object, str] = {
    aten.mul.Tensor: "mul",
    aten.sub.Tensor: "sub",
    aten.div.Tensor: "div",
    aten._to_copy.default: "cast",
    aten.to.dtype: "cast",
    torch.ops.prims.convert_element_type.default: "cast",
}
_VIEWS = {
    operator.getitem,
    aten.chunk.default,
    aten.narrow.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unbind.int,
}

# torch.export adds this assertion about a tensor's metadata to casts.
_ASSERTION = aten._assert_tensor_metadata.default


def nodes_before_writes(graph: Graph) -> Iterator[Node]:
    """Yield the nodes before the first one that writes to a tensor.

    A functional graph writes at most to its inputs, at its end.
    """
    return takewhile(lambda node: not _writes(node), list(graph.nodes))


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


class Step(NamedTuple):
    """An elementwise step: its name (mul, sub, div or cast), its input and its operand."""

    name: str
    source: Any
    operand: Any


def step_of(node: Node) -> Step | None:
    """Return the node as a step, or None if it is not one."""
    name = _STEPS.get(node.target)
    arguments = (*node.args, *node.kwargs.values())
    if name is None or len(arguments) != 2 or node.kwargs.keys() - {"dtype"}:
        return None
    source, operand = arguments
    if name == "mul" and not isinstance(source, Node):
        source, operand = operand, source
    return Step(name, source, operand)


def value_of(operand: Any) -> torch.Tensor | None:
    """Return the fake tensor of a node's result if the graph records one."""
    value = operand.meta.get("val") if isinstance(operand, Node) else None
    return value if isinstance(value, torch.Tensor) else None


def readers(node: Node) -> list[Node]:
    """Return the nodes that read a node's result, except assertions."""
    return [user for user in node.users if user.target is not _ASSERTION]


def erase(graph: Graph, node: Node) -> None:
    """Remove a node that nothing reads, with the assertions about it."""
    for assertion in list(node.users):
        graph.erase_node(assertion)
    graph.erase_node(node)


def source_of(node: Node) -> Node:
    """Return the tensor that a node views with constant indices, or the node itself."""
    while node.target in _VIEWS and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def add_call(
    graph: Graph, target: Any, arguments: tuple[Any, ...], named: Mapping[str, Any] | None = None
) -> Node:
    """Add a call, and record the fake tensors that it returns."""
    node = graph.call_function(target, arguments, dict(named or {}))
    values = map_arg(arguments, lambda argument: argument.meta["val"])
    node.meta["val"] = target(*values, **node.kwargs)
    return node


class DigestCall(NamedTuple):
    """A call of `mmhash::digest`."""

    x: Node
    algorithm: Algorithm
    dim: int | None


def digest_of(node: Node) -> DigestCall | None:
    """Return the node as a call of `mmhash::digest`, or None."""
    if node.target is not DIGEST:
        return None
    (x,) = node.all_input_nodes
    options: Any = node.kwargs
    return DigestCall(x, check_algorithm(options.get("algorithm", "blake3")), options.get("dim"))
