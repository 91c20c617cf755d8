"""The fused operator gives the features and digests of the plain steps, bit for bit."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import mmhash
from mmhash import InputTypeError, InputValueError, ops
from mmhash.digest import ALGORITHMS
from mmhash.ops import features, normalizing

MEAN = [0.48145466, 0.4578275, 0.40821073]
STD = [0.26862954, 0.26130258, 0.27577711]
PIXELS = torch.randint(
    0, 256, (4, 3, 8, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)


def plain(
    pixels: torch.Tensor,
    scale: float | None,
    mean: torch.Tensor,
    std: torch.Tensor,
    dtype: torch.dtype,
    dim: int,
) -> torch.Tensor:
    shape = [1] * pixels.ndim
    shape[dim] = -1
    x = pixels.to(torch.float32)
    if scale is not None:
        x = x * scale
    return ((x - mean.view(shape)) / std.view(shape)).to(dtype)


def check(
    pixels: torch.Tensor,
    scale: float | None,
    mean: torch.Tensor,
    std: torch.Tensor,
    dtype: torch.dtype,
    dim: int,
    algorithm: str,
) -> None:
    features, digests = ops.normalize_digest(pixels, scale, mean, std, dtype, algorithm, dim)
    expected = plain(pixels, scale, mean, std, dtype, dim).contiguous()
    assert features.dtype == dtype
    assert features.is_contiguous()
    # As bytes: NaN is not equal to itself, and -0 is to 0.
    assert mmhash.digest(with_one_nan(features)) == mmhash.digest(with_one_nan(expected))
    assert [bytes(row) for row in digests.tolist()] == [
        mmhash.digest(image, algorithm=algorithm).bytes for image in features
    ]


def with_one_nan(x: torch.Tensor) -> torch.Tensor:
    """Of two NaNs that meet torch passes on either, depending on where its loops are cut."""
    return torch.where(x.isnan(), torch.nan, x)


@pytest.mark.parametrize("dtype", normalizing.OUT_DTYPES)
@pytest.mark.parametrize("scale", [None, 1 / 255])
@pytest.mark.parametrize("dim", [1, -1, 3])
def test_equal_to_the_plain_steps(dim: int, scale: float | None, dtype: torch.dtype) -> None:
    pixels = PIXELS if dim == 1 else PIXELS.permute(0, 2, 3, 1).contiguous()
    for algorithm in ALGORITHMS:
        check(pixels, scale, torch.tensor(MEAN), torch.tensor(STD), dtype, dim, algorithm)


@pytest.mark.parametrize("dim", [1, -1])
@pytest.mark.parametrize("dtype", normalizing.OUT_DTYPES)
@pytest.mark.parametrize("block", [1, 7, 100, 1000])
def test_blocks_of_any_length_are_normalized(
    block: int, dtype: torch.dtype, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a row, at a row's end, at an image's, and with several images in a block."""
    monkeypatch.setattr(features, "BLOCK", block)
    pixels = PIXELS if dim == 1 else PIXELS.permute(0, 2, 3, 1).contiguous()
    for algorithm in ALGORITHMS:
        check(pixels, 0.1, torch.tensor(MEAN), torch.tensor(STD), dtype, dim, algorithm)


@pytest.mark.parametrize("shape", [(1, 3, 1200, 1100), (300, 3, 70, 70)])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_large_batches_and_large_images(shape: tuple[int, ...], algorithm: str) -> None:
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8)
    for given_, dim in ((pixels, 1), (pixels.permute(0, 2, 3, 1).contiguous(), -1)):
        check(
            given_, 1 / 255, torch.tensor(MEAN), torch.tensor(STD), torch.bfloat16, dim, algorithm
        )


def test_huge_pages_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalizing, "_HUGE_FROM", 1)
    for dtype in normalizing.OUT_DTYPES:
        check(PIXELS, 0.1, torch.tensor(MEAN), torch.tensor(STD), dtype, 1, "blake3")
    features, _ = ops.normalize_digest(PIXELS, 0.1, MEAN, STD, torch.float32)
    features.add_(1)  # it is memory like any other


@pytest.mark.parametrize(
    "shape", [(0, 3, 4, 4), (2, 3, 0, 4), (2, 0, 4, 4), (5, 3), (2, 3, 4), (2, 3, 2, 4, 4)]
)
@pytest.mark.parametrize("last", [False, True])
def test_empty_and_unusual_shapes(shape: tuple[int, ...], last: bool) -> None:
    pixels = torch.zeros(shape, dtype=torch.uint8)
    if last:
        pixels = pixels.movedim(1, -1)
    channels = shape[1]
    check(
        pixels,
        None,
        torch.ones(channels),
        torch.ones(channels),
        torch.float16,
        -1 if last else 1,
        "blake3",
    )


@given(
    st.lists(st.floats(width=32), min_size=2, max_size=2),
    st.lists(st.floats(width=32), min_size=2, max_size=2),
    st.none() | st.floats(),
    st.sampled_from(normalizing.OUT_DTYPES),
)
@example([0.0, math.nan], [0.0, 0.0], 3.5e38, torch.float32)  # 0 times inf, minus NaN
def test_any_mean_std_and_scale(
    mean: list[float], std: list[float], scale: float | None, dtype: torch.dtype
) -> None:
    pixels = torch.arange(256, dtype=torch.uint8).repeat(2).view(1, 2, 256)
    check(pixels, scale, torch.tensor(mean), torch.tensor(std), dtype, 1, "blake3")


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"pixels": PIXELS.float()}, InputTypeError, "uint8"),
        ({"mean": torch.zeros(3, dtype=torch.float64)}, InputTypeError, "float32"),
        ({"std": torch.zeros(2)}, InputValueError, "3 channels"),
        ({"out_dtype": torch.float64}, InputTypeError, "bfloat16"),
        ({"channel_dim": 2}, InputValueError, "dim 1 or in the last"),
        ({"channel_dim": 0}, InputValueError, "dim 1 or in the last"),
        ({"pixels": PIXELS[0, 0, 0]}, InputValueError, "dim 1 or in the last"),
        ({"mean": torch.zeros(3, device="meta")}, InputValueError, "one device"),
        ({"algorithm": "md5"}, InputValueError, "blake3, xxh3"),
    ],
)  # fmt: skip
def test_unsuitable_arguments_are_refused(
    change: dict[str, object], error: type[Exception], text: str
) -> None:
    call: dict[str, object] = {
        "pixels": PIXELS,
        "scale": None,
        "mean": torch.zeros(3),
        "std": torch.ones(3),
        "out_dtype": torch.float16,
    }
    with pytest.raises(error, match=text):
        torch.ops.mmhash.normalize_digest(**(call | change))


@pytest.mark.parametrize(
    ("dim", "dtype"), [(1, torch.float32), (-1, torch.float16), (1, torch.bfloat16)]
)
def test_opcheck(dim: int, dtype: torch.dtype) -> None:
    pixels = PIXELS if dim == 1 else PIXELS.permute(0, 2, 3, 1)
    call = (pixels, 0.1, torch.tensor(MEAN), torch.tensor(STD), dtype, "xxh3", dim)
    torch.library.opcheck(normalizing.normalize_digest, call)
