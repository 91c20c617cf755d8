"""Digests as torch operators, which torch.compile traces through and torch.export keeps.

Importing this package registers `mmhash::digest`, `mmhash::digests` and `mmhash::normalize_digest`
on the CPU and on CUDA.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmhash.ops import hashing as _hashing
from mmhash.ops import normalizing as _normalizing

__all__ = ["digest", "digests", "normalize_digest"]


def digest(x: Tensor, *, algorithm: str = "blake3", dim: int | None = None) -> Tensor:
    """Return the bytes of `mmhash.digest(x)` on x's device; with `dim=0`, a row for each slice."""
    result: Tensor = _hashing.digest(x, algorithm=algorithm, dim=dim)
    return result


def digests(parts: Sequence[Tensor], *, algorithm: str = "blake3") -> Tensor:
    """Return a row of bytes per part.

    All parts must be on one device. On a GPU they take one launch.
    """
    rows: Tensor = _hashing.digests(parts, algorithm=algorithm)
    return rows


def normalize_digest(  # noqa: PLR0917  (in the operator's order)
    pixels: Tensor,
    scale: float | None,
    mean: Tensor | Sequence[float],
    std: Tensor | Sequence[float],
    out_dtype: torch.dtype,
    algorithm: str = "blake3",
    channel_dim: int = 1,
) -> tuple[Tensor, Tensor]:
    """Return features of uint8 pixels and a digest of each image, in one pass over the pixels.

    The features equal `((pixels.to(float32) * scale - mean) / std).to(out_dtype)` bit for bit;
    without `scale`, there is no multiplication. The batch is dim 0; the channels are dim 1 or the
    last dim.
    """
    mean, std = (
        torch.as_tensor(values, dtype=torch.float32, device=pixels.device) for values in (mean, std)
    )
    result: tuple[Tensor, Tensor] = _normalizing.normalize_digest(
        pixels, scale, mean, std, out_dtype, algorithm, channel_dim
    )
    return result
