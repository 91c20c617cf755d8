"""Digests as operators of torch, which torch.compile traces through and torch.export keeps.

Importing this registers `mmhash::digest`, `mmhash::digests` and `mmhash::normalize_digest`, on the
CPU and on CUDA.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmhash.ops import hashing as _hashing
from mmhash.ops import normalizing as _normalizing

__all__ = ["digest", "digests", "normalize_digest"]


def digest(x: Tensor, *, algorithm: str = "blake3", dim: int | None = None) -> Tensor:
    """The bytes of `mmhash.digest(x)`, where `x` lies; with `dim=0` a row for each slice of it."""
    found: Tensor = _hashing.digest(x, algorithm=algorithm, dim=dim)
    return found


def digests(parts: Sequence[Tensor], *, algorithm: str = "blake3") -> Tensor:
    """A row of bytes for each part; all lie on one device, and take one launch there."""
    found: Tensor = _hashing.digests(parts, algorithm=algorithm)
    return found


def normalize_digest(  # noqa: PLR0917  (in the operator's order)
    pixels: Tensor,
    scale: float | None,
    mean: Tensor | Sequence[float],
    std: Tensor | Sequence[float],
    out_dtype: torch.dtype,
    algorithm: str = "blake3",
    channel_dim: int = 1,
) -> tuple[Tensor, Tensor]:
    """Features of uint8 pixels, and a digest an image of them, from one reading of the pixels.

    The features are those of `((pixels.to(float32) * scale - mean) / std).to(out_dtype)`, to the
    bit; without a `scale` nothing is multiplied. The batch is dim 0, the channels are dim 1 or the
    last.
    """
    mean, std = (
        torch.as_tensor(values, dtype=torch.float32, device=pixels.device) for values in (mean, std)
    )
    both: tuple[Tensor, Tensor] = _normalizing.normalize_digest(
        pixels, scale, mean, std, out_dtype, algorithm, channel_dim
    )
    return both
