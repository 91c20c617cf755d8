"""A pass that fuses normalising pixels and digesting each image into one call.

The results stay equal bit for bit. So steps that round differently are not fused: another order, a
multiplication by 1 / std, float64, or a mean or std that is not one float32 per channel.
"""

import operator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from mmhash.compile.nodes import (
    NORMALIZE_DIGEST,
    Step,
    add_call,
    digest_of,
    erase,
    nodes_before_writes,
    readers,
    step_of,
    value_of,
)
from mmhash.compile.passes import Pass
from mmhash.cuda.normalize import pays
from mmhash.digest import Algorithm
from mmhash.ops.normalizing import OUT_DTYPES


class FuseNormalizeDigest(Pass):
    """Fuse `((pixels.to(float32) * scale - mean) / std).to(dtype)` with its `digest(…, dim=0)`.

    The multiplication and the last cast may be missing, and the features may have other readers.
    The steps stay as they are if another node reads an intermediate step, or if the fused call
    would be slower on this GPU.
    """

    name = "fuse_normalize_digest"

    def __call__(self, graph_module: GraphModule) -> int:
        """Return the number of fused digests."""
        graph = graph_module.graph
        return sum(_fuse(graph, node) for node in nodes_before_writes(graph))


class _Steps(NamedTuple):
    """The operands of the steps, and the steps' nodes from the features back to the first cast."""

    nodes: list[Node]
    pixels: Node
    scale: float | None
    mean: Node
    std: Node


def _fuse(graph: Graph, digest: Node) -> bool:
    """Fuse a digest with the steps before it if they match the pattern; return True if fused."""
    call = digest_of(digest)
    steps = _steps(call.x) if call and call.dim == 0 else None
    if call is None or steps is None:
        return False
    features, pixels, mean, std = map(value_of, (call.x, steps.pixels, steps.mean, steps.std))
    if features is None or pixels is None or mean is None or std is None:
        return False
    channel_dim = _channel_dim(pixels, mean, std)
    if channel_dim is None or features.dtype not in OUT_DTYPES:
        return False
    if pixels.is_cuda and not _pays_on_cuda(pixels, features.dtype, call.algorithm, channel_dim):
        return False

    with graph.inserting_before(call.x):
        fused = add_call(
            graph,
            NORMALIZE_DIGEST,
            (steps.pixels, steps.scale, steps.mean, steps.std, features.dtype),
            {"algorithm": call.algorithm, "channel_dim": channel_dim},
        )
        for index, node in enumerate((call.x, digest)):
            node.replace_all_uses_with(add_call(graph, operator.getitem, (fused, index)))
    for node in (digest, *steps.nodes):
        erase(graph, node)
    return True


def _steps(features: Node) -> _Steps | None:
    """Match the steps backwards from the features, as long as each step has one reader."""
    nodes = [features]
    steps: list[Step] = []
    while len(steps) < 5 and (step := step_of(nodes[-1])):
        steps.append(step)
        if not isinstance(step.source, Node) or len(readers(step.source)) != 1:
            break
        nodes.append(step.source)
    cast = int(bool(steps) and steps[0].name == "cast")
    match steps[cast:]:
        case [Step("div", _, std), Step("sub", _, mean), *rest]:
            pass
        case _:
            return None
    scale: float | None = None
    match rest:
        case [Step("mul", _, int() | float() as by), *rest]:
            scale = by
    match rest:
        case [Step("cast", Node() as pixels, torch.float32), *more]:
            own = nodes[: len(steps) - len(more)]
            if mean not in own and std not in own:
                return _Steps(own, pixels, scale, mean, std)
    return None


def _channel_dim(pixels: Tensor, mean: Tensor, std: Tensor) -> int | None:
    """Return the dimension of the pixels along which mean and std lie, or None."""
    if pixels.dtype != torch.uint8 or pixels.ndim < 2 or not pixels.is_contiguous():
        return None
    for values in (mean, std):
        if values.dtype != torch.float32 or values.device != pixels.device:
            return None
    for dim in (1, pixels.ndim - 1):
        shape = [1] * pixels.ndim
        shape[dim] = pixels.shape[dim]
        if all(_padded(values, pixels.ndim) == shape for values in (mean, std)):
            return dim
    return None


def _pays_on_cuda(
    pixels: Tensor, out_dtype: torch.dtype, algorithm: Algorithm, channel_dim: int
) -> bool:
    image = pixels.shape[1:]
    if not all(type(axis) is int for axis in image):
        return True  # symbolic shapes are unknown
    return pays(image, out_dtype, algorithm, channel_dim - 1)


def _padded(values: Tensor, ndim: int) -> list[int]:
    return [1] * (ndim - values.ndim) + list(values.shape)
