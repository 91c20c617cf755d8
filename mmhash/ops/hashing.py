"""The operators `mmhash::digest` and `mmhash::digests`, which return digests as tensors.

The result is on the device of the input. On a GPU each call is one launch on the current stream,
and the host does not wait.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mmhash.cuda.launch import hash_segments
from mmhash.digest import DIGEST_SIZE, Algorithm, check_algorithm
from mmhash.errors import InputValueError
from mmhash.ops.host import hash_buffers
from mmhash.torch_tensor import DeviceBytes
from mmhash.view import view_of

if TYPE_CHECKING:
    from mmhash.states import FlatBuffer

# A captured launch would share its scratch memory and ticket with later launches.
TAGS = (torch.Tag.cudagraph_unsafe,)

_DEVICE_DIGEST_SIZE = 32  # a kernel writes this much per segment, even if a digest is shorter


@torch.library.custom_op("mmhash::digest", mutates_args=(), tags=TAGS)
def digest(x: Tensor, *, algorithm: str = "blake3", dim: int | None = None) -> Tensor:
    """Return the digest of `x`, or with `dim=0` a digest per slice."""
    chosen = check_algorithm(algorithm)
    if dim is None:
        return _hash([x], chosen)[0]
    content = view_of(x).data
    count = _slices(x, dim)
    if isinstance(content, DeviceBytes):
        size = content.nbytes // max(count, 1)
        addresses = [content.address + index * size for index in range(count)]
        return _hash_on_device(x.device, addresses, [size] * count, chosen)
    size = len(content) // max(count, 1)
    return hash_buffers([content[index * size :][:size] for index in range(count)], chosen)


@digest.register_fake
def _(x: Tensor, *, algorithm: str = "blake3", dim: int | None = None) -> Tensor:
    size = DIGEST_SIZE[check_algorithm(algorithm)]
    shape = (size,) if dim is None else (_slices(x, dim), size)
    return x.new_empty(shape, dtype=torch.uint8)


@torch.library.custom_op("mmhash::digests", mutates_args=(), tags=TAGS)
def digests(parts: Sequence[Tensor], *, algorithm: str = "blake3") -> Tensor:
    """Return a digest per part as a row; all parts must be on one device."""
    _check_parts(parts)
    return _hash(parts, check_algorithm(algorithm))


@digests.register_fake
def _(parts: Sequence[Tensor], *, algorithm: str = "blake3") -> Tensor:
    _check_parts(parts)
    shape = (len(parts), DIGEST_SIZE[check_algorithm(algorithm)])
    return parts[0].new_empty(shape, dtype=torch.uint8)


def _slices(x: Tensor, dim: int) -> int:
    if dim != 0 or x.ndim == 0:
        raise InputValueError(f"slices must be hashed along dim 0, not {dim} of {x.ndim}")
    return x.shape[0]


def _check_parts(parts: Sequence[Tensor]) -> None:
    if not parts:
        raise InputValueError("digests() takes at least one part")
    if any(part.device != parts[0].device for part in parts):
        raise InputValueError("digests() takes parts on one device")


def _hash(parts: Sequence[Tensor], algorithm: Algorithm) -> Tensor:
    on_host: list[FlatBuffer] = []
    on_device: list[DeviceBytes] = []  # keeps packed copies alive until the launch is queued
    for part in parts:
        content = view_of(part).data
        if isinstance(content, DeviceBytes):
            on_device.append(content)
        else:
            on_host.append(content)
    if on_device:
        addresses = [content.address for content in on_device]
        lengths = [content.nbytes for content in on_device]
        return _hash_on_device(parts[0].device, addresses, lengths, algorithm)
    return hash_buffers(on_host, algorithm)


def _hash_on_device(
    device: torch.device, addresses: Sequence[int], lengths: Sequence[int], algorithm: Algorithm
) -> Tensor:
    out = torch.empty(len(lengths), _DEVICE_DIGEST_SIZE, dtype=torch.uint8, device=device)
    if lengths:
        hash_segments(out.get_device(), addresses, lengths, algorithm, device_out=out.data_ptr())
    return out[:, : DIGEST_SIZE[algorithm]].contiguous()
