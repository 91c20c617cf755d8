"""The list of operations that only read. Every other node of a graph counts as a writer.

An operator's schema proves nothing: `aten::batch_norm` declares no mutation, but updates its
running statistics.
"""

import builtins
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.fx import Graph, Node
from torch.nn import functional

import mmhash.ops  # noqa: F401  (registers the operators)

# Names that torch's functions, methods and operators share. Unless called with `out`, none of these
# operations writes to a tensor or changes a shape or storage.
_NAMES = frozenset(
    """
    abs absolute acos acosh add addcdiv addcmul addmm addmv alias all amax amin aminmax angle
    any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort asin
    asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d avg_pool2d baddbmm bfloat16 bincount
    bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm
    bool broadcast_tensors broadcast_to byte cat ceil char chunk clamp clamp_max clamp_min clip
    clone column_stack concat constant_pad_nd contiguous conv1d conv2d conv3d
    convert_element_type convolution copysign cos cosh count_nonzero cpu cross cuda cummax
    cummin cumprod cumsum deg2rad detach diag diag_embed diagonal diff dim div divide dot double
    dsplit dstack einsum element_size embedding empty empty_like eq equal erf erfc erfinv exp
    exp2 expand expand_as expm1 eye fix flatten flip fliplr flipud float float_power floor
    floor_divide fmax fmin fmod frac full full_like gather ge greater greater_equal gt half
    hsplit hstack hypot index index_select int inverse is_contiguous is_floating_point isclose
    isfinite isinf isnan item kron le lerp less less_equal lift_fresh lift_fresh_copy linspace
    log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit
    logsumexp long lt masked_fill masked_select matmul max maximum mean median min minimum mm
    moveaxis movedim mul multiply mv nan_to_num nanmean nansum narrow native_layer_norm
    ndimension ne neg negative nelement new_empty new_full new_ones new_tensor new_zeros nonzero
    not_equal numel ones ones_like outer permute positive pow prod rad2deg rand rand_like
    randint randn randn_like randperm ravel reciprocal relu remainder repeat repeat_interleave
    reshape reshape_as roll rot90 round rsqrt rsub scalar_tensor searchsorted select sgn short
    sigmoid sign signbit sin sinc sinh size slice softmax sort split split_with_sizes sqrt
    square squeeze stack std std_mean stride sub subtract sum swapaxes swapdims
    sym_constrain_range sym_constrain_range_for_size sym_numel sym_size sym_stride t take
    take_along_dim tan tanh tensor tensor_split tile to topk trace transpose tril triu
    true_divide trunc type type_as unbind unflatten unfold unsqueeze var var_mean vdot view
    view_as vsplit vstack where xlogy zeros zeros_like _assert_async _assert_scalar
    _assert_tensor_metadata _local_scalar_dense _log_softmax _softmax _to_copy _unsafe_index
    _unsafe_view
    """.split()  # noqa: SIM905  (a line for each name would fill 300 lines)
)

_FUNCTIONS = frozenset(
    getattr(holder, name)
    for holder, names in {
        torch: _NAMES,
        functional: {
            "adaptive_avg_pool2d", "avg_pool2d", "conv2d", "gelu", "grid_sample", "group_norm",
            "interpolate", "layer_norm", "linear", "log_softmax", "one_hot", "pad",
            "scaled_dot_product_attention", "softmax", "unfold",
        },
    }.items()
    for name in names
    if callable(getattr(holder, name, None))
)  # fmt: skip

# Functions that only read if all arguments are tensors, numbers, or lists of these.
_ON_VALUES = frozenset(
    getattr(operator, name)
    for name in (
        "abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "invert", "le", "lshift",
        "lt", "matmul", "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "sub",
        "truediv", "truth", "xor",
    )
)  # fmt: skip
_ATTRIBUTES = frozenset({"T", "device", "dtype", "mT", "ndim", "shape"})

# Operations that write only to their first argument.
_IN_PLACE_NAMES = frozenset(
    {"add_", "div_", "divide_", "mul_", "multiply_", "sub_", "subtract_", "true_divide_"}
)
_IN_PLACE_FUNCTIONS = frozenset(
    {operator.iadd, operator.imul, operator.isub, operator.itruediv}
)  # fmt: skip

_OPERATOR = type(torch.ops.aten.add.Tensor)
_OPERATORS = frozenset(
    {
        torch.ops.mmhash.digest.default,
        torch.ops.mmhash.digests.default,
        torch.ops.mmhash.normalize_digest.default,
    }
)


def may_write(node: Node) -> bool:
    """Return True if a node may write to a tensor, or change its shape or its storage."""
    if node.op in {"placeholder", "get_attr", "output"}:
        return False
    if "out" in node.kwargs or "inplace" in node.kwargs:
        return True
    target = node.target
    if node.op == "call_module":
        return not _is_guard(node)
    if isinstance(target, _OPERATOR):
        return target not in _OPERATORS and not _is_listed(target)
    if node.op == "call_method":
        is_listed = target in _NAMES
    elif target is builtins.getattr:
        is_listed = node.args[1] in _ATTRIBUTES
    elif target in _ON_VALUES:
        is_listed = True
    else:
        return target not in _FUNCTIONS
    return not (is_listed and all(map(_is_known, node.all_input_nodes)))


def written_storages(graph: Graph) -> set[int]:
    """Return the storages that any node of a graph may write to."""
    return {
        storage
        for node in graph.nodes
        if may_write(node)
        for argument in _may_be_written(node)
        for storage in storages_of(argument)
    }


def storages_of(node: Node) -> Iterator[int]:
    """Yield the storage of each tensor that a node returns; views of one tensor share a storage."""
    for value in _flat(result_of(node)):
        if isinstance(value, Tensor) and value.layout == torch.strided:
            yield _unwrapped(value).untyped_storage()._cdata


def _unwrapped(value: Tensor) -> Tensor:
    """Return the tensor that torch.vmap wrapped in a batch."""
    while functorch.is_functorch_wrapped_tensor(value):
        value = functorch.get_unwrapped(value)
    return value


def result_of(node: Node) -> Any:
    """Return the fake tensors and numbers of a node's result, or None if they are unknown."""
    return node.meta.get("val", node.meta.get("example_value"))


def _may_be_written(node: Node) -> list[Node]:
    """Return the arguments that a node may write to."""
    is_in_place = (
        node.target in _IN_PLACE_NAMES
        or node.target in _IN_PLACE_FUNCTIONS
        or _name(node.target) in _IN_PLACE_NAMES
    )
    if is_in_place and node.op != "call_module" and all(map(_is_known, node.all_input_nodes)):
        return [node.args[0]] if node.args and isinstance(node.args[0], Node) else []
    return node.all_input_nodes


def _is_listed(target: Any) -> bool:
    return not target._schema.is_mutable and _name(target) in _NAMES


def _name(target: Any) -> str | None:
    """Return the name of a torch operator without its overload, or None for other targets."""
    if not isinstance(target, _OPERATOR):
        return None
    namespace, _, name = str(target._schema.name).partition("::")
    return name if namespace in {"aten", "prims"} else None


def _is_guard(node: Node) -> bool:
    """Return True if a node checks inputs: torch.export adds such a node to its modules."""
    owner = node.graph.owning_module
    if owner is None:
        return False
    module = type(owner.get_submodule(str(node.target)))
    # Compared by name: torch loads the class with torch.export, and some releases lack it.
    return (module.__module__, module.__qualname__) == ("torch.export._unlift", "GuardsFn")


def _is_known(node: Node) -> bool:
    """Return True if the results are tensors and numbers with their usual methods."""
    if node.target in _OPERATORS:
        return True  # nodes added by a pass have no recorded result
    values = list(_flat(result_of(node)))
    return bool(values) and all(
        isinstance(value, (Tensor, int, float, torch.SymInt, torch.SymFloat, torch.SymBool))
        for value in values
    )


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _flat(part)
    else:
        yield value
