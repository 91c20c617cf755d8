"""The meaning of graph nodes, for graphs from Dynamo, torch.export and symbolic tracing."""

import copy
import operator
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from mmhash.compile.effects import result_of
from mmhash.digest import Algorithm, check_algorithm

aten = torch.ops.aten

DIGEST = torch.ops.mmhash.digest.default
DIGESTS = torch.ops.mmhash.digests.default
NORMALIZE_DIGEST = torch.ops.mmhash.normalize_digest.default

# In-place steps count as the same steps if no other node reads the tensor.
_STEPS: dict[object, str] = {
    target: step
    for step, targets in {
        "mul": (operator.mul, operator.imul, torch.mul, torch.multiply, aten.mul.Tensor,
                aten.mul.Scalar, "mul", "mul_", "multiply", "multiply_"),
        "sub": (operator.sub, operator.isub, torch.sub, torch.subtract, aten.sub.Tensor,
                "sub", "sub_", "subtract", "subtract_"),
        "div": (operator.truediv, operator.itruediv, torch.div, torch.divide, torch.true_divide,
                aten.div.Tensor, "div", "div_", "divide", "divide_", "true_divide", "true_divide_"),
        "cast": ("to", "type", aten.to.dtype, aten._to_copy.default,
                 torch.ops.prims.convert_element_type.default),
    }.items()
    for target in targets
}  # fmt: skip
_CASTS = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}

_VIEWS = {
    operator.getitem, torch.select, torch.narrow, torch.split, torch.chunk, torch.unbind,
    aten.select.int, aten.slice.Tensor, aten.narrow.default, aten.split.Tensor,
    aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int,
    "select", "narrow", "split", "chunk", "unbind",
}  # fmt: skip

# torch.export adds this assertion about a tensor's metadata to casts.
_ASSERTION = aten._assert_tensor_metadata.default


class Step(NamedTuple):
    """An elementwise step: its name (mul, sub, div or cast), its input and its operand."""

    name: str
    source: Any
    operand: Any


def step_of(node: Node) -> Step | None:
    """Return the node as a step, or None if it is not one."""
    if node.op not in {"call_function", "call_method"}:
        return None
    if node.op == "call_method" and node.target in _CASTS and len(node.args) == 1:
        return Step("cast", node.args[0], _CASTS[str(node.target)]) if not node.kwargs else None
    name = _STEPS.get(node.target)
    if name is None:
        return None
    arguments = (*node.args, *node.kwargs.values())
    if len(arguments) != 2 or node.kwargs.keys() - ({"dtype"} if name == "cast" else ()):
        return None
    if name == "cast" and not isinstance(arguments[1], torch.dtype):
        return None
    source, operand = arguments
    if name == "mul" and number_of(source) is not None:
        source, operand = operand, source
    return Step(name, source, operand)


def number_of(operand: Any) -> float | None:
    """Return the constant that a tensor is multiplied by: a number, or a float32 in a tensor.

    If a tensor has another reader, its value is unknown: that reader may write to the tensor or
    return a view of it.
    """
    if isinstance(operand, Node) and operand.target is torch.tensor and len(operand.args) == 1:
        value = value_of(operand)
        if value is None or value.dtype != torch.float32 or value.requires_grad:
            return None
        if len(operand.users) != 1:
            return None
        operand = operand.args[0]
    return operand if type(operand) in {float, int} else None


def copy_of(graph: Graph) -> Graph:
    """Return a copy with the attributes that Dynamo sets on nodes, which deepcopy omits."""
    twin = copy.deepcopy(graph)
    for node, own in zip(graph.nodes, twin.nodes, strict=True):
        vars(own).update({**vars(node), **vars(own)})
    return twin


def value_of(operand: Any) -> torch.Tensor | None:
    """Return the fake tensor of a node's result if the graph records one."""
    value = result_of(operand) if isinstance(operand, Node) else None
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
    while node.op != "call_module" and node.target in _VIEWS:
        if not node.args or not isinstance(node.args[0], Node):
            break
        node = node.args[0]
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
