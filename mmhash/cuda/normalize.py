"""Features of uint8 pixels and their digests, computed in one pass over the pixels."""

import ctypes
import struct
from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

import torch

from mmhash.algorithms import ALGORITHM_SPECS, ALGORITHMS, DIGEST_SIZE, Algorithm
from mmhash.cuda.device import current_stream, device_of
from mmhash.cuda.launch import hash_segments

# Limits of the kernels: CHANNELS of normalize.cuh, the largest image that its Divisor can divide,
# and how many pixels a word has.
_CHANNELS: Final = 8
_LARGEST: Final = (1 << 31) - 1
_WORD: Final = 4

_SECTOR: Final = 32

# Work and Format of normalize.cuh.
_WORK = struct.Struct("<7Q6IfI4I")
_FORMAT = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}

_ITEM_SIZES = (2, 4)
_KERNEL_NAMES = {
    name: [f"normalize_{name}_{size * 8}" for size in _ITEM_SIZES] for name in ALGORITHMS
}


class Steps(NamedTuple):
    """The operands of the steps from pixels to features, and the dimension of the channels."""

    scale: float | None
    mean: torch.Tensor
    std: torch.Tensor
    channel_dim: int


def normalize_digest(  # noqa: PLR0917  (the operator's own arguments, which torch gives in order)
    pixels: torch.Tensor,
    scale: float | None,
    mean: torch.Tensor,
    std: torch.Tensor,
    out_dtype: torch.dtype,
    algorithm: Algorithm,
    channel_dim: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features of a batch of images on a device, and a digest of each image.

    `pixels` is contiguous, with the batch as its first dimension. `mean` and `std` are float32, one
    per channel, on the same device. The features equal torch's `((pixels.float() * scale - mean) /
    std).to(out_dtype)` bit for bit. All work is ordered on the current stream; the function does
    not wait.

    Inputs that the kernels do not support are computed step by step: images whose number of pixels
    is above 2^31 or not a multiple of 4, pixels at an address that 4 does not divide, and more than
    8 channels.
    """
    steps = Steps(scale, mean, std, channel_dim)
    count, channels = pixels.shape[0], pixels.shape[channel_dim]
    image = pixels.numel() // max(count, 1)
    in_words = image % _WORD == 0 and pixels.data_ptr() % _WORD == 0
    if not 0 < image <= _LARGEST or channels > _CHANNELS or not in_words:
        return _step_by_step(pixels, steps, out_dtype, algorithm)
    features = torch.empty(pixels.shape, dtype=out_dtype, device=pixels.device)
    digests = pixels.new_empty((count, DIGEST_SIZE[algorithm]))
    kernels = ALGORITHM_SPECS[algorithm].kernels
    shift = kernels.tile_shift or _tile_shift(features.nbytes)
    tiles = ((features.nbytes // count - 1) >> shift) + 1
    # A node per tile, plus room for the length that ends the message of an xxh3 root.
    node_bytes = count * (tiles + 1) * kernels.node_size
    scratch = pixels.new_empty(node_bytes + count * 4)
    counters = scratch.data_ptr() + node_bytes
    work = pack_work((pixels, features, digests, scratch), steps, counters, tiles, shift)
    stream = current_stream(pixels.get_device())
    device = device_of(pixels.get_device())
    with device.context():
        functions = device.kernels(f"normalize_{algorithm}.cu", _KERNEL_NAMES[algorithm])
        function = functions[_ITEM_SIZES.index(out_dtype.itemsize)]
        if tiles > 1:
            device.driver.call("cuMemsetD32Async", counters, 0, count, stream)
        arguments = (ctypes.c_char_p * 1)(work)
        device.driver.launch(function, count * tiles, kernels.threads, stream, arguments)
    return features, digests


def pays(image: Sequence[int], out_dtype: torch.dtype, algorithm: Algorithm, channel: int) -> bool:
    """Return True if the kernel beats compiled steps plus a digest for images of this shape.

    The kernel loses for images that are computed step by step. The kernel also loses for BLAKE3 if
    images end within a sector of memory, which is then written twice, and for xxh3 with the
    channels last.
    """
    pixels = prod(image)
    if pixels % _WORD or image[channel] > _CHANNELS:
        return False
    kernels = ALGORITHM_SPECS[algorithm].kernels
    has_channels_last = channel != 0 and image[channel] != 1
    has_partial_sectors = pixels * out_dtype.itemsize % _SECTOR != 0
    return (kernels.fuses_channels_last or not has_channels_last) and (
        kernels.fuses_partial_sectors or not has_partial_sectors
    )


def pack_work(
    memory: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    steps: Steps,
    counters: int,
    tiles: int,
    shift: int,
) -> bytes:
    """Return the kernel's parameter; `memory` holds the pixels, features, digests and scratch."""
    pixels, features, *_ = memory
    image, channels = pixels.numel() // len(pixels), pixels.shape[steps.channel_dim]
    run = image if channels == 1 else prod(pixels.shape[steps.channel_dim + 1 :])
    return _WORK.pack(
        *(tensor.data_ptr() for tensor in memory),
        counters,
        steps.mean.data_ptr(),
        steps.std.data_ptr(),
        *divisor(run),
        *divisor(channels),
        1.0 if steps.scale is None else steps.scale,
        _FORMAT[features.dtype],
        image,
        tiles,
        shift,
        1,
    )


def _step_by_step(
    pixels: torch.Tensor, steps: Steps, out_dtype: torch.dtype, algorithm: Algorithm
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the features with torch's kernels, and hash them in one launch."""
    shape = [1] * pixels.ndim
    shape[steps.channel_dim] = -1
    made = pixels.float()
    if steps.scale is not None:
        made = made * steps.scale
    made = (made - steps.mean.reshape(shape)) / steps.std.reshape(shape)
    features = made.to(out_dtype).contiguous()
    digests = pixels.new_empty((len(pixels), 32))
    addresses = [image.data_ptr() for image in features]
    lengths = [image.nbytes for image in features]
    hash_segments(pixels.get_device(), addresses, lengths, algorithm, device_out=digests.data_ptr())
    return features, digests[:, : DIGEST_SIZE[algorithm]].contiguous()


def divisor(by: int) -> tuple[int, int, int]:
    """Return the Divisor of normalize.cuh; its multiplier is 2^shift / by, rounded up.

    The error stays below 1 / by for numerators below 2^31.
    """
    shift = 31 + (by - 1).bit_length()
    return by, (1 << shift) // by + 1, shift


def _tile_shift(nbytes: int) -> int:
    """Return the tile shift for BLAKE3.

    Small tiles keep all processors busy; large tiles join faster.
    """
    return 17 if nbytes <= 128 << 20 else 18
