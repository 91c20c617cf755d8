"""Computes features on the CPU in blocks, and hashes each block while it is in the core's cache."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mmhash.cpu import Hasher, cpu_count
from mmhash.digest import Algorithm
from mmhash.ops.host import SHARE, as_rows, hash_buffers

T = TypeVar("T")

# How many features a thread computes before hashing them.
BLOCK = 1 << 18

# With channels last, means and deviations are repeated for this many features. Otherwise the inner
# loops would have only three steps.
_RUN = 4096

# torch splits longer casts between its own threads, which wait for each other when all cores are
# busy.
_CAST = 32767

# Each thread gets several shares, because other work may delay a thread.
_SHARES = 4


class Rows(NamedTuple):
    """Pixels as rows, the features of all rows in sequence, and each row's mean and std."""

    pixels: NDArray[np.uint8]
    features: Tensor
    mean: NDArray[np.float32]
    std: NDArray[np.float32]
    in_image: int


def rows_of(pixels: Tensor, features: Tensor, mean: Tensor, std: Tensor, channel_dim: int) -> Rows:
    """Arrange contiguous pixels in rows: a row per channel, or per run if channels are last."""
    images = pixels.shape[0]
    channels = pixels.shape[channel_dim]
    in_channel = pixels.numel() // max(images * channels, 1)
    if channel_dim == pixels.ndim - 1:
        run = _longest_run(in_channel, _RUN // max(channels, 1))
        in_image, width = in_channel // run, run * channels
        mean, std = (values.reshape(1, channels).tile(run) for values in (mean, std))
    else:
        in_image, width = channels, in_channel
        mean, std = (values.reshape(channels, 1).tile(images, 1) for values in (mean, std))
    shape = (images * in_image, width)
    return Rows(
        pixels.view(shape).numpy(),
        features.view(-1),
        np.broadcast_to(mean.numpy(force=True), shape),
        np.broadcast_to(std.numpy(force=True), shape),
        in_image,
    )


def _longest_run(count: int, limit: int) -> int:
    """Return the largest divisor of `count` within a limit."""
    return next((run for run in range(min(count, limit), 1, -1) if count % run == 0), 1)


def make(rows: Rows, images: int, scale: float | None, algorithm: Algorithm) -> Tensor:
    """Compute all features, and return the digest of each image."""
    flat = rows.features.view(torch.uint8).numpy().data
    size = len(flat) // max(images, 1)
    threads = max(1, min(cpu_count(), len(flat) // SHARE))

    def fill(first: int, last: int) -> None:
        deque(_fill(rows, first, last, scale), maxlen=0)

    def fill_and_hash(first: int, last: int) -> list[bytes]:
        hashers = [Hasher(algorithm) for _ in range(first, last)]
        for start, end in _fill(rows, first * rows.in_image, last * rows.in_image, scale):
            for image in range(start // size, -(-end // size)):
                part = flat[max(start, image * size) : min(end, (image + 1) * size)]
                hashers[image - first].update(part)
        return [hasher.digest() for hasher in hashers]

    if images >= threads:
        shares = _share(images, threads, fill_and_hash)
        return as_rows(list(chain.from_iterable(shares)), algorithm)
    # A digest needs its bytes in order, so compute all features first: this gives all threads work.
    _share(len(rows.pixels), threads, fill)
    return hash_buffers([flat[index * size :][:size] for index in range(images)], algorithm)


def _share(count: int, threads: int, work: Callable[[int, int], T]) -> list[T]:
    """Call `work(start, end)` in threads, once for each share of `count`."""
    if threads == 1:
        return [work(0, count)]
    shares = min(count, threads * _SHARES)
    cuts = [count * share // shares for share in range(shares + 1)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, cuts[:-1], cuts[1:]))


def _fill(rows: Rows, first: int, last: int, scale: float | None) -> Iterator[tuple[int, int]]:
    """Compute the features of some rows; yield the start and end of each block in bytes."""
    width = rows.pixels.shape[1]
    height = max(1, BLOCK // max(width, 1))
    itemsize = rows.features.itemsize
    scratch = torch.empty(min(BLOCK, (last - first) * width), dtype=torch.float32)
    for row in range(first, last, height):
        for column in range(0, width, BLOCK):
            block = slice(row, min(row + height, last)), slice(column, column + BLOCK)
            start = row * width + column
            end = start + rows.pixels[block].size
            features = rows.features[start:end]
            normalized = features if features.dtype == torch.float32 else scratch[: end - start]
            _normalize(rows, block, scale, normalized.numpy())
            if normalized is not features:
                _cast(normalized, features)
            yield start * itemsize, end * itemsize


def _normalize(
    rows: Rows, block: tuple[slice, slice], scale: float | None, out: NDArray[np.float32]
) -> None:
    """Do torch's steps one by one with numpy, which computes in the calling thread."""
    pixels = rows.pixels[block]
    x = out.reshape(pixels.shape)
    with np.errstate(all="ignore"):
        np.copyto(x, pixels)
        if scale is not None:
            x *= np.float32(scale)
        x -= rows.mean[block]
        x /= rows.std[block]


# Otherwise a thread could not write to a tensor that was allocated in inference mode.
@torch.inference_mode()
def _cast(values: Tensor, features: Tensor) -> None:
    for part, out in zip(torch.split(values, _CAST), torch.split(features, _CAST), strict=True):
        out.copy_(part)
