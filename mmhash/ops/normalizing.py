"""The operator `mmhash::normalize_digest`: features, and a digest of each image's features.

On the CPU, each block of features is hashed while it is in the cache. On a GPU, one kernel computes
and hashes the features.
"""

import mmap

import torch
from torch import Tensor

from mmhash.digest import DIGEST_SIZE, check_algorithm
from mmhash.errors import InputTypeError, InputValueError
from mmhash.ops.features import make, rows_of
from mmhash.ops.hashing import TAGS

OUT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# From this size on, glibc returns freed memory to the system at once, so each new allocation faults
# in its pages again. Pages of 2 MiB are much faster to write.
_HUGE_FROM = 32 << 20


@torch.library.custom_op("mmhash::normalize_digest", mutates_args=(), device_types="cpu", tags=TAGS)
def normalize_digest(  # noqa: PLR0917  (an operator's schema)
    pixels: Tensor,
    scale: float | None,
    mean: Tensor,
    std: Tensor,
    out_dtype: torch.dtype,
    algorithm: str = "blake3",
    channel_dim: int = 1,
) -> tuple[Tensor, Tensor]:
    """Return `((pixels.to(float32) * scale - mean) / std).to(out_dtype)` and a digest per image.

    `mean` and `std` have one float32 for each channel, in any shape.
    """
    chosen = check_algorithm(algorithm)
    channel_dim = _check(pixels, mean, std, out_dtype, channel_dim)
    features = _empty(pixels.shape, out_dtype)
    rows = rows_of(pixels.contiguous(), features, mean, std, channel_dim)
    return features, make(rows, pixels.shape[0], scale, chosen)


@normalize_digest.register_kernel("cuda")
def _(  # noqa: PLR0917  (the operator's schema)
    pixels: Tensor,
    scale: float | None,
    mean: Tensor,
    std: Tensor,
    out_dtype: torch.dtype,
    algorithm: str = "blake3",
    channel_dim: int = 1,
) -> tuple[Tensor, Tensor]:
    from mmhash.cuda import normalize  # noqa: PLC0415  (needed only for a GPU)

    chosen = check_algorithm(algorithm)
    channel_dim = _check(pixels, mean, std, out_dtype, channel_dim)
    mean, std = mean.reshape(-1).contiguous(), std.reshape(-1).contiguous()
    return normalize.normalize_digest(
        pixels.contiguous(), scale, mean, std, out_dtype, chosen, channel_dim
    )


@normalize_digest.register_fake
def _(  # noqa: PLR0917  (the operator's schema)
    pixels: Tensor,
    scale: float | None,  # noqa: ARG001  (the operator's signature)
    mean: Tensor,
    std: Tensor,
    out_dtype: torch.dtype,
    algorithm: str = "blake3",
    channel_dim: int = 1,
) -> tuple[Tensor, Tensor]:
    size = DIGEST_SIZE[check_algorithm(algorithm)]
    _check(pixels, mean, std, out_dtype, channel_dim)
    features = pixels.new_empty(pixels.shape, dtype=out_dtype)
    return features, pixels.new_empty((pixels.shape[0], size), dtype=torch.uint8)


def _check(
    pixels: Tensor, mean: Tensor, std: Tensor, out_dtype: torch.dtype, channel_dim: int
) -> int:
    """Check the arguments; return the channels' dimension as a non-negative number."""
    if pixels.dtype != torch.uint8:
        raise InputTypeError(f"pixels must be uint8, not {pixels.dtype}")
    if mean.dtype != torch.float32 or std.dtype != torch.float32:
        raise InputTypeError(f"mean and std must be float32, not {mean.dtype} and {std.dtype}")
    if out_dtype not in OUT_DTYPES:
        raise InputTypeError(f"features must be float32, float16 or bfloat16, not {out_dtype}")
    if not pixels.device == mean.device == std.device:
        raise InputValueError("pixels, mean and std must be on one device")
    last = pixels.ndim - 1
    if last < 1 or channel_dim not in {1, -1, last}:
        raise InputValueError(
            f"pixels must have their channels in dim 1 or in the last dim, not in {channel_dim} of"
            f" {pixels.ndim}"
        )
    channels = pixels.shape[channel_dim]
    if mean.numel() != channels or std.numel() != channels:
        raise InputValueError(
            f"{channels} channels need {channels} means and stds, not {mean.numel()} and"
            f" {std.numel()}"
        )
    return channel_dim % pixels.ndim


def _empty(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    nbytes = shape.numel() * dtype.itemsize
    if nbytes < _HUGE_FROM or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype)
    memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
