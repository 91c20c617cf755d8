"""SGLang's 64-bit hash of a feature or of an encoded file.

On the CPU, a feature's hash is truncated SHA-256. On a GPU, the engine uses its own mix. A file's
hash is truncated BLAKE3.
"""

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from mmhash.cpu import hash_bytes
from mmhash.engines import checks
from mmhash.engines.sglang.gpu_kernel import gpu_hash
from mmhash.engines.sglang.releases import LATEST, RELEASES, require
from mmhash.errors import InputTypeError
from mmhash.torch_tensor import is_tensor
from mmhash.view import bytes_of, view_of

if TYPE_CHECKING:
    import torch


@checks.readable("the feature")
def hash_feature(x: Any, *, version: str = LATEST) -> int:
    """Return SGLang's hash of a feature, which depends on the device but not on shape or dtype.

    A feature is bytes, an array, a tensor, or a list that begins with a tensor. For a tensor on a
    GPU, the result is the value of the engine's GPU kernel. The server in Rust hashes files instead
    of features: see `file_hash`.
    """
    recipe = RELEASES.recipe(version)
    tensors = _tensors(x)
    if any(tensor.is_cuda for tensor in tensors):
        require(recipe.gpu_hash, "hash on the GPU", "0.5.1", version)
        return gpu_hash(_concatenated(tensors))
    if recipe.cpu_hash == "raw" or not tensors:
        return _sha256(tensors or [x])
    return _sha256([_widened(_concatenated(tensors), version)])


@checks.readable("the file")
def file_hash(data: Any, *, version: str = LATEST) -> int:
    """Return the hash of an encoded image as the server in Rust and Inkling's processor compute it.

    `data` is the bytes of the file as the engine receives it.
    """
    require(RELEASES.recipe(version).file_hash, "hash of files", "0.5.23", version)
    view = view_of(data)
    if view.kind != "bytes":
        raise InputTypeError(f"a file must be bytes, not a {view.kind}")
    return hash_bytes(view.on_host(), "blake3").u64


def _tensors(x: Any) -> list["torch.Tensor"]:
    """Return the tensors in `x` in order; an array or bytes contain none."""
    if is_tensor(x):
        return [x]
    if not isinstance(x, list):
        return []
    if not x or not is_tensor(x[0]):
        raise InputTypeError("SGLang hashes a list only if it begins with a tensor")
    flat = list(_flatten(x))
    if not all(map(is_tensor, flat)):
        raise InputTypeError("SGLang hashes a list of tensors only if it holds nothing else")
    return flat


def _flatten(x: Any) -> Any:
    if isinstance(x, list):
        for part in x:
            yield from _flatten(part)
    else:
        yield x


def _concatenated(tensors: list["torch.Tensor"]) -> "torch.Tensor":
    import torch  # noqa: PLC0415  (torch is imported already)

    # Like the engine, let torch promote tensors of different dtypes.
    return torch.concat([tensor.detach().flatten() for tensor in tensors])


def _widened(tensor: "torch.Tensor", version: str) -> "torch.Tensor":
    import torch  # noqa: PLC0415  (torch is imported already)

    if tensor.dtype is torch.bfloat16:
        return tensor.float()
    try:
        tensor.cpu().numpy()
    except TypeError:
        raise InputTypeError(
            f"sglang {version} cannot hash a tensor of dtype {tensor.dtype}: numpy lacks it"
        ) from None
    return tensor


def _sha256(parts: list[Any]) -> int:
    hasher = hashlib.sha256()
    for part in parts:
        # The engine takes the bytes of an array as they are in memory, even of a big-endian array.
        in_memory = isinstance(part, np.ndarray) and part.dtype.str[0] == ">"
        if is_tensor(part):
            hasher.update(tensor_bytes(part))
        else:
            hasher.update(bytes_of(part.view(part.dtype.newbyteorder("<")) if in_memory else part))
    return int.from_bytes(hasher.digest()[:8], "big")


def tensor_bytes(tensor: "torch.Tensor", *, is_copied: bool = False) -> memoryview:
    """Return the bytes of a tensor as the engine receives them.

    The engine copies a tensor that is not contiguous, and any tensor with `is_copied`. In a copy,
    torch writes 1 for every true bool.
    """
    import torch  # noqa: PLC0415  (torch is imported already)

    if tensor.is_conj() or tensor.is_neg():
        raise InputTypeError(
            "SGLang takes no lazily conjugated or negated tensor: resolve it first"
        )
    if tensor.dtype is torch.bool and (is_copied or not tensor.is_contiguous()):
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    return bytes_of(tensor)
