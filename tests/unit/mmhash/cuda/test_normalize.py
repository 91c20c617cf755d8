"""The pixels' arithmetic, compiled for the host: torch's own, bit for bit."""

import ctypes
import random
from collections.abc import Callable

import pytest
import torch

from mmhash.cuda.normalize import Steps, divisor, pack_work, pays
from mmhash.digest import Algorithm

MEAN = [0.48145466, 0.4578275, 0.40821073, 0.1, -3.0, 7e-3, 1.5, 0.0]
STD = [0.26862954, 0.26130258, 0.27577711, 0.3, 11.0, 1e-2, 0.7, 1.0]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(scope="module")
def host(compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    return compile_for_host("normalize.cpp", "-ffp-contract=off")


def _check(
    host: ctypes.CDLL,
    shape: tuple[int, ...],
    channel_dim: int,
    dtype: torch.dtype,
    scale: float | None = 1 / 255,
    values: tuple[list[float], list[float]] = (MEAN, STD),
) -> None:
    pixels = torch.randint(0, 256, (1, *shape), dtype=torch.uint8)
    pixels.flatten()[: min(256, pixels.numel())] = torch.arange(256)[: pixels.numel()]
    channels = pixels.shape[channel_dim]
    mean, std = (torch.tensor(of[:channels]) for of in values)
    made = torch.full(pixels.shape, 7, dtype=dtype)
    steps = Steps(scale, mean, std, channel_dim)
    nothing = torch.empty(0)
    host.host_normalize(pack_work((pixels, made, nothing, nothing), steps, 0, 1, 0))

    by_channel = [1] * pixels.ndim
    by_channel[channel_dim] = channels
    scaled = pixels.float()
    if scale is not None:
        scaled = scaled * scale
    expected = ((scaled - mean.reshape(by_channel)) / std.reshape(by_channel)).to(dtype)
    width = torch.int32 if dtype == torch.float32 else torch.int16
    assert torch.equal(made.view(width), expected.view(width))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [
        (3, 32, 32),
        (1, 40, 40),
        (4, 27, 27),  # a channel ends within a word
        (4, 3, 1),
        (8, 1, 1),
        (8, 5, 7),
        (2, 2, 1),
    ],
)
def test_channels_first(host: ctypes.CDLL, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    _check(host, shape, 1, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", range(1, 9))
def test_channels_last(host: ctypes.CDLL, channels: int, dtype: torch.dtype) -> None:
    _check(host, (16, 36, channels), 3, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [None, 1.0, 1 / 127.5, 0.0, 3e36, 1e-40])
def test_every_scale(host: ctypes.CDLL, scale: float | None, dtype: torch.dtype) -> None:
    _check(host, (3, 32, 32), 1, dtype, scale=scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_overflow_and_underflow_are_torchs(host: ctypes.CDLL, dtype: torch.dtype) -> None:
    tiny = [1e-45, 3e-39, 1e-7, 1e38, 1e-30, 1.0, -2.0, 65504.0]
    for turn in range(len(tiny)):
        _check(host, (8, 8, 8), 1, dtype, values=(MEAN, tiny[turn:] + tiny[:turn]))
        _check(host, (8, 8, 8), 1, dtype, values=(tiny[turn:] + tiny[:turn], STD))


def test_a_divisor_divides_exactly(host: ctypes.CDLL) -> None:
    chosen = random.Random(6)
    largest = (1 << 31) - 1
    bys = [1, 2, 3, 5, 7, 729, 112896, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, largest]
    bys += [int(2 ** chosen.uniform(0, 31)) for _ in range(300)]
    for by in bys:
        multiples = [by * chosen.randrange(largest // by + 1) for _ in range(10)]
        for n in {
            0,
            1,
            largest,
            *multiples,
            *(m - 1 for m in multiples),
            *(m + 1 for m in multiples),
        }:
            if 0 <= n <= largest:
                assert host.host_divided(n, *map(ctypes.c_uint32, divisor(by))) == n // by, (n, by)


@pytest.mark.parametrize(
    ("image", "dtype", "algorithm", "channel", "expected"),
    [
        ((3, 336, 336), torch.bfloat16, "blake3", 0, True),
        ((3, 378, 378), torch.bfloat16, "blake3", 0, False),
        ((3, 378, 378), torch.float32, "blake3", 0, False),
        ((3, 378, 378), torch.bfloat16, "xxh3", 0, True),
        ((336, 336, 3), torch.bfloat16, "blake3", 2, True),
        ((336, 336, 3), torch.bfloat16, "xxh3", 2, False),
        ((336, 336, 1), torch.bfloat16, "xxh3", 2, True),
        ((3, 5, 5), torch.bfloat16, "xxh3", 0, False),
        ((9, 64, 64), torch.bfloat16, "xxh3", 0, False),
    ],
)
def test_where_the_kernel_pays(
    image: tuple[int, ...], dtype: torch.dtype, algorithm: Algorithm, channel: int, expected: bool
) -> None:
    assert pays(image, dtype, algorithm, channel) is expected
