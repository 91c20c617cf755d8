"""SGLang's 64-bit hash of a feature, or of an encoded file.

A feature's is truncated SHA-256 on the CPU, and the engine's own mix on a GPU. A file's is
truncated BLAKE3.
"""

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from mmhash.cpu import hash_bytes
from mmhash.engines import checks
from mmhash.engines.engine import Server
from mmhash.engines.sglang.gpu_kernel import gpu_hash
from mmhash.engines.sglang.releases import LATEST, RELEASES, is_rust, require
from mmhash.errors import InputTypeError
from mmhash.torch_tensor import is_tensor
from mmhash.view import bytes_of, view_of

if TYPE_CHECKING:
    import torch


@checks.readable("the feature")
def hash_feature(x: Any, *, version: str = LATEST, server: Server = "python") -> int:
    """Return SGLang's hash of a feature, by its device: shape and dtype do not count.

    A feature is bytes, an array, a tensor, or a list that begins with a tensor. If a tensor is
    on a GPU, the value is that of the engine's GPU kernel. The server in Rust hashes no features
    but the encoded file, which is then `x`: see `file_hash`.
    """
    if is_rust(server, version):
        return file_hash(x, version=version)
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
    """Return the hash of an encoded image by the server in Rust, and by Inkling's processor.

    `data` is the bytes of the file as the engine receives it.
    """
    require(RELEASES.recipe(version).file_hash, "hash of files", "0.5.23", version)
    view = view_of(data)
    if view.kind != "bytes":
        raise InputTypeError(f"a file is bytes, not a {view.kind}")
    return hash_bytes(view.on_host(), "blake3").u64


def _tensors(x: Any) -> list["torch.Tensor"]:
    """Return the tensors in `x`, in order; none if it is an array or bytes."""
    if is_tensor(x):
        return [x]
    if not isinstance(x, list):
        return []
    if not x or not is_tensor(x[0]):
        raise InputTypeError("sglang hashes a list only if it begins with a tensor")
    flat = list(_flatten(x))
    if not all(map(is_tensor, flat)):
        raise InputTypeError("sglang hashes a list of tensors only if it holds nothing else")
    return flat


def _flatten(x: Any) -> Any:
    if isinstance(x, list):
        for part in x:
            yield from _flatten(part)
    else:
        yield x


def _concatenated(tensors: list["torch.Tensor"]) -> "torch.Tensor":
    import torch  # noqa: PLC0415  (torch is imported already)

    # Several dtypes are promoted by torch, as in the engine.
    return torch.concat([tensor.detach().flatten() for tensor in tensors])


def _widened(tensor: "torch.Tensor", version: str) -> "torch.Tensor":
    import torch  # noqa: PLC0415  (torch is imported already)

    if tensor.dtype is torch.bfloat16:
        return tensor.float()
    try:
        tensor.cpu().numpy()
    except TypeError:
        raise InputTypeError(
            f"sglang {version} cannot hash a tensor of dtype {tensor.dtype}: numpy has none"
        ) from None
    return tensor


def _sha256(parts: list[Any]) -> int:
    hasher = hashlib.sha256()
    for part in parts:
        # The engine takes an array's bytes as they are in memory, also of a big-endian one.
        in_memory = isinstance(part, np.ndarray) and part.dtype.str[0] == ">"
        if is_tensor(part):
            hasher.update(tensor_bytes(part))
        else:
            hasher.update(bytes_of(part.view(part.dtype.newbyteorder("<")) if in_memory else part))
    return int.from_bytes(hasher.digest()[:8], "big")


def tensor_bytes(tensor: "torch.Tensor", *, is_copied: bool = False) -> memoryview:
    """Return the bytes of a tensor as the engine gets them.

    A tensor that is not contiguous is copied there, and one with `is_copied`; torch writes 1 for
    every bool but 0 then.
    """
    import torch  # noqa: PLC0415  (torch is imported already)

    if tensor.is_conj() or tensor.is_neg():
        raise InputTypeError("sglang takes no lazily conjugated or negated tensor: resolve it")
    if tensor.dtype is torch.bool and (is_copied or not tensor.is_contiguous()):
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    return bytes_of(tensor)
