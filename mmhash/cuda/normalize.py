"""Features of uint8 pixels and their digests, from one reading of the pixels."""

import ctypes
import struct
from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

import torch

from mmhash.cuda.launch import LEAF_SHIFT, NODE, THREADS, current_stream, device_of, hash_segments
from mmhash.digest import DIGEST_SIZE, Algorithm

# What the kernels take: normalize.cuh's CHANNELS, images that its Divisor divides, words of pixels.
_CHANNELS: Final = 8
_LARGEST: Final = (1 << 31) - 1
_WORD: Final = 4

_SECTOR: Final = 32

# normalize.cuh's Work and Format.
_WORK = struct.Struct("<7Q6IfI4I")
_FORMAT = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}

_SOURCE: dict[Algorithm, str] = {"blake3": "normalize_blake3.cu", "xxh3": "normalize_xxh3.cu"}
_ITEM_SIZES = (2, 4)
_ENTRIES = {name: [f"normalize_{name}_{size * 8}" for size in _ITEM_SIZES] for name in _SOURCE}


class Steps(NamedTuple):
    """How pixels become features: the steps' values, and the dimension of the channels."""

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
    """Features of a batch of images on a device, and a digest for each of them.

    `pixels` is contiguous, its first dimension the batch; `mean` and `std` are float32, one a
    channel, on the same device. The features are torch's own for
    `((pixels.float() * scale - mean) / std).to(out_dtype)`, bit for bit. All is in order on the
    current stream, and nothing waits.

    What the kernels do not take goes step by step: images whose pixels are no multiple of 4 or more
    than 2^31, pixels at an odd address, more than 8 channels.
    """
    steps = Steps(scale, mean, std, channel_dim)
    count, channels = pixels.shape[0], pixels.shape[channel_dim]
    image = pixels.numel() // max(count, 1)
    in_words = image % _WORD == 0 and pixels.data_ptr() % _WORD == 0
    if not 0 < image <= _LARGEST or channels > _CHANNELS or not in_words:
        return _step_by_step(pixels, steps, out_dtype, algorithm)
    features = torch.empty(pixels.shape, dtype=out_dtype, device=pixels.device)
    digests = pixels.new_empty((count, DIGEST_SIZE[algorithm]))
    shift = LEAF_SHIFT if algorithm == "xxh3" else _tile_shift(features.nbytes)
    tiles = ((features.nbytes // count - 1) >> shift) + 1
    # A node a tile, and room for the length with which an xxh3 root's message ends.
    nodes = count * (tiles + 1) * NODE[algorithm]
    scratch = pixels.new_empty(nodes + count * 4)
    counters = scratch.data_ptr() + nodes
    work = pack_work((pixels, features, digests, scratch), steps, counters, tiles, shift)
    device = pixels.get_device()
    stream = current_stream(device)
    device_state = device_of(device)
    with device_state.context():
        kernels = device_state.kernels(_SOURCE[algorithm], _ENTRIES[algorithm])
        kernel = kernels[_ITEM_SIZES.index(out_dtype.itemsize)]
        if tiles > 1:
            device_state.driver.call("cuMemsetD32Async", counters, 0, count, stream)
        shape = (count * tiles, 1, 1, THREADS[algorithm], 1, 1)
        arguments = (ctypes.c_char_p * 1)(work)
        device_state.driver.call("cuLaunchKernel", kernel, *shape, 0, stream, arguments, None)
    return features, digests


def pays(image: Sequence[int], out_dtype: torch.dtype, algorithm: Algorithm, channel: int) -> bool:
    """Whether the kernel beats compiled steps and a digest for images of this shape.

    Not where it goes step by step. Nor, on an H200 and 256 MiB of pixels: for BLAKE3, where images
    end within a sector of memory, which is then written by halves (378² to bfloat16: 675 µs against
    581); and for xxh3 with the channels last (358 against 331).
    """
    pixels = prod(image)
    if pixels % _WORD or image[channel] > _CHANNELS:
        return False
    if algorithm == "xxh3":
        return channel == 0 or image[channel] == 1
    return pixels * out_dtype.itemsize % _SECTOR == 0


def pack_work(
    memory: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    steps: Steps,
    counters: int,
    tiles: int,
    shift: int,
) -> bytes:
    """What a launch is told; the memory is the pixels, features, digests and scratch."""
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
    """The same by torch's own kernels, and a launch that hashes what they wrote."""
    shape = [1] * pixels.ndim
    shape[steps.channel_dim] = -1
    made = pixels.float()
    if steps.scale is not None:
        made = made * steps.scale
    made = (made - steps.mean.reshape(shape)) / steps.std.reshape(shape)
    features = made.to(out_dtype).contiguous()
    digests = pixels.new_empty((len(pixels), 32))
    segments = [(image.data_ptr(), image.nbytes) for image in features]
    hash_segments(pixels.get_device(), segments, algorithm, device_out=digests.data_ptr())
    return features, digests[:, : DIGEST_SIZE[algorithm]].contiguous()


def divisor(by: int) -> tuple[int, int, int]:
    """What normalize.cuh's Divisor holds: the multiplier is 2^shift / by, the next larger integer.

    Its error stays below 1 / by for numerators below 2^31.
    """
    shift = 31 + (by - 1).bit_length()
    return by, (1 << shift) // by + 1, shift


def _tile_shift(nbytes: int) -> int:
    """Smaller tiles leave no processor idle, larger ones join faster.

    64 images of 8 MiB of features on an H200: 390, 380 and 384 µs with 128, 256 and 512 KiB.
    """
    return 17 if nbytes <= 128 << 20 else 18
