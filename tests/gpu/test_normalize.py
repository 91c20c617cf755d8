"""Features and their digests from one launch: torch's own features, and mmhash's digests of them."""

import math
from typing import Any

import pytest
import torch

import mmhash
from mmhash.cuda.normalize import normalize_digest
from mmhash.digest import Algorithm

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

BOTH = pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
MEAN = [0.48145466, 0.4578275, 0.40821073, 0.1, -3.0, 7e-3, 1.5]
STD = [0.26862954, 0.26130258, 0.27577711, 0.3, 11.0, 1e-2, 0.7]
SCALE = 1 / 255


def noise(*shape: int) -> torch.Tensor:
    generator = torch.Generator(device="cuda").manual_seed(math.prod(shape))
    return torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda", generator=generator)


def channels(values: list[float], count: int) -> torch.Tensor:
    return torch.tensor((values * count)[:count], device="cuda")


def check(
    pixels: torch.Tensor,
    dtype: torch.dtype,
    algorithm: Algorithm,
    channel_dim: int = 1,
    scale: float | None = SCALE,
    values: tuple[list[float], list[float]] = (MEAN, STD),
) -> None:
    count = pixels.shape[channel_dim]
    mean, std = (channels(of, count) for of in values)
    features, digests = normalize_digest(pixels, scale, mean, std, dtype, algorithm, channel_dim)

    shape = [1] * pixels.ndim
    shape[channel_dim] = count
    steps = pixels.float()
    if scale is not None:
        steps = steps * scale
    expected = ((steps - mean.reshape(shape)) / std.reshape(shape)).to(dtype)
    assert features.shape == pixels.shape
    assert features.dtype == dtype
    assert features.is_contiguous()
    width = torch.int32 if dtype == torch.float32 else torch.int16
    assert torch.equal(features.view(width), expected.view(width))
    wanted = [mmhash.digest(image, algorithm=algorithm).bytes for image in expected.cpu()]
    assert [bytes(row) for row in digests.cpu().numpy()] == wanted


@BOTH
@DTYPES
@pytest.mark.parametrize(
    "shape",
    [
        (2, 3, 336, 336),  # planes of whole chunks, and tiles that hold two
        (1, 3, 1024, 1024),
        (3, 1, 512, 512),
        (5, 3, 378, 378),  # images that start between granules
        (4, 3, 333, 333),  # and between words
        (3, 4, 27, 27),  # planes that end within a word
        (200, 3, 14, 14),
        (2000, 3, 2, 2),
        (2, 7, 40, 40),
        (2, 8, 3, 2),
        (2, 300, 5, 3),  # more channels than tables
        (1, 3, 1, 1),
        (3, 2),
    ],
)
def test_every_shape(shape: tuple[int, ...], dtype: torch.dtype, algorithm: Algorithm) -> None:
    check(noise(*shape), dtype, algorithm)


@BOTH
@DTYPES
@pytest.mark.parametrize(
    "shape",
    [(2, 336, 336, 3), (3, 333, 335, 3), (9, 30, 31, 4), (2, 90, 1), (3, 100, 60, 8), (5, 64, 2)],
)
def test_channels_last(shape: tuple[int, ...], dtype: torch.dtype, algorithm: Algorithm) -> None:
    check(noise(*shape), dtype, algorithm, channel_dim=len(shape) - 1)


@BOTH
@DTYPES
def test_every_length_around_edges(dtype: torch.dtype, algorithm: Algorithm) -> None:
    edges = [240, 1024, 8192, 32 << 10, 128 << 10, 256 << 10]
    for edge in edges:
        for extra in (-64, -17, -16, -9, -8, -4, -1, 0, 1, 2, 4, 8, 60, 64, 68, 520, 1024):
            check(noise(2, 1, max(0, edge // dtype.itemsize + extra)), dtype, algorithm)


@BOTH
def test_many_images_of_many_tiles(algorithm: Algorithm) -> None:
    check(noise(40, 3, 700, 1001), torch.bfloat16, algorithm)  # 160 MiB of features
    check(noise(2, 3, 9000, 5001), torch.bfloat16, algorithm)  # larger tiles


@BOTH
@pytest.mark.parametrize("skipped", [1, 2, 4, 8])
def test_pixels_at_any_address(skipped: int, algorithm: Algorithm) -> None:
    flat = noise(2 * 3 * 256 * 256 + 8)
    pixels = flat[skipped : skipped + 2 * 3 * 256 * 256].reshape(2, 3, 256, 256)
    for dtype in (torch.float32, torch.bfloat16):
        check(pixels, dtype, algorithm)


@BOTH
@DTYPES
@pytest.mark.parametrize("scale", [None, 1 / 127.5, 0.0, 3e38, float("nan")])
def test_every_scale(scale: float | None, dtype: torch.dtype, algorithm: Algorithm) -> None:
    check(noise(2, 3, 64, 64), dtype, algorithm, scale=scale)


@BOTH
@DTYPES
def test_extreme_means_and_deviations(dtype: torch.dtype, algorithm: Algorithm) -> None:
    extremes = [0.0, -0.0, 1e-45, 3e-39, 1e38, float("inf"), float("-inf"), float("nan"), 1e-6]
    for at in range(len(extremes)):
        turned = extremes[at:] + extremes[:at]
        check(noise(1, 9, 16, 16), dtype, algorithm, values=(extremes, turned))
        check(noise(1, 3, 16, 16), dtype, algorithm, values=(turned, extremes))


@BOTH
@DTYPES
def test_nothing_has_its_digest_too(dtype: torch.dtype, algorithm: Algorithm) -> None:
    check(noise(3, 3, 0, 5), dtype, algorithm)
    check(noise(3, 0, 4, 5), dtype, algorithm)
    check(noise(0, 3, 4, 5), dtype, algorithm)


@BOTH
def test_the_order_of_the_stream_is_kept(algorithm: Algorithm) -> None:
    pixels = noise(4, 3, 200, 200)
    mean, std = channels(MEAN, 3), channels(STD, 3)
    wanted = normalize_digest(pixels, SCALE, mean, std, torch.bfloat16, algorithm, 1)
    late = torch.zeros_like(pixels)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late.copy_(pixels)
        found = normalize_digest(late, SCALE, mean, std, torch.bfloat16, algorithm, 1)
        late.zero_()
        assert not stream.query()
    stream.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@BOTH
def test_a_graph_of_it_can_be_replayed(algorithm: Algorithm) -> None:
    pixels = noise(4, 3, 336, 336)
    mean, std = channels(MEAN, 3), channels(STD, 3)
    arguments: tuple[Any, ...] = (SCALE, mean, std, torch.bfloat16, algorithm, 1)
    normalize_digest(pixels, *arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = normalize_digest(pixels, *arguments)
    for _ in range(3):
        pixels.copy_(pixels.flip(0) + 1)
        graph.replay()
        wanted = normalize_digest(pixels, *arguments)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
