"""The pattern in its spellings is fused, its near misses are not, and nobody sees a difference."""

# ruff: noqa: ARG005  (each case takes what any of them needs)

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import mmhash
from mmhash import ops
from mmhash.compile import Backend, FuseNormalizeDigest, PassManager

MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073])
STD = torch.tensor([0.26862954, 0.26130258, 0.27577711])
SCALE = 1 / 255
NAME = "fuse_normalize_digest"

# A model: pixels, mean and std to a tuple of tensors.
Model = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]


def run(model: Model, *args: Tensor, then: str = "eager") -> int:
    """Compile and compare with eager, to the bit; how many were fused."""
    backend = Backend(PassManager(), then)
    # Each gets its own, for a model may write to what it is given.
    expected = model(*(arg.clone() if arg.is_contiguous() else arg for arg in args))
    found = torch.compile(model, backend=backend, fullgraph=True)(*args)
    assert [mmhash.key(one) for one in found] == [mmhash.key(one) for one in expected]
    return backend.manager.last_report().matches(NAME)


def per_channel(pixels: Tensor, last: bool) -> tuple[Tensor, Tensor, Tensor]:
    if last:
        return pixels.permute(0, 2, 3, 1).contiguous(), MEAN, STD
    return pixels, MEAN.view(3, 1, 1), STD.view(3, 1, 1)


# Each takes a compilation: every two of the values are in one case.
@pytest.mark.parametrize(
    ("dtype", "last", "scale"),
    [
        (torch.float32, False, None),
        (torch.float32, True, SCALE),
        (torch.float16, False, SCALE),
        (torch.float16, True, None),
        (torch.bfloat16, False, None),
        (torch.bfloat16, True, SCALE),
    ],
)
def test_dtypes_layouts_and_rescale(
    pixels: Tensor, dtype: torch.dtype, last: bool, scale: float | None
) -> None:
    def model(pixels: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, ...]:
        x = pixels.to(torch.float32)
        if scale is not None:
            x = x * scale
        features = ((x - mean) / std).to(dtype)
        return features, ops.digest(features, dim=0)

    assert run(model, *per_channel(pixels, last)) == 1


def out_of_place(p: Tensor, m: Tensor, s: Tensor) -> Tensor:
    return torch.div(torch.sub(torch.mul(SCALE, p.float()), m), s).half()


def in_place(p: Tensor, m: Tensor, s: Tensor) -> Tensor:
    return p.to(dtype=torch.float32).mul_(SCALE).sub_(m).div_(s).bfloat16()


def by_a_whole_number(p: Tensor, m: Tensor, s: Tensor) -> Tensor:
    return ((p.float() * 2 - m) / s).to(torch.float32)


def augmented(p: Tensor, m: Tensor, s: Tensor) -> Tensor:
    x = p.float()
    x *= SCALE
    x -= m
    x /= s
    return x.to(torch.float16)


def of_pixels_that_were_cast(p: Tensor, m: Tensor, s: Tensor) -> Tensor:
    return ((p.float() * 0.5).to(torch.uint8).float() - m) / s


@pytest.mark.parametrize(
    ("features", "algorithm"),
    [
        (out_of_place, "blake3"),
        (in_place, "xxh3"),
        (by_a_whole_number, "blake3"),
        (augmented, "xxh3"),
        (of_pixels_that_were_cast, "blake3"),
    ],
)
def test_spellings(pixels: Tensor, features: Callable[..., Tensor], algorithm: str) -> None:
    def model(pixels: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, ...]:
        made = features(pixels, mean, std)
        return made, ops.digest(made, algorithm=algorithm, dim=0)

    assert run(model, *per_channel(pixels, last=False)) == 1


def test_the_features_may_be_read_by_others_and_written_later(pixels: Tensor, then: str) -> None:
    def model(pixels: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, ...]:
        made = (pixels.float() - mean) / std
        twice = made * 2
        digests = ops.digest(made, dim=0)
        made.add_(1)
        return made, twice, digests, pixels + 1, mean + 1

    assert run(model, *per_channel(pixels, last=False), then=then) == 1


def test_a_module_with_buffers(pixels: Tensor, then: str) -> None:
    class Normalize(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", MEAN.view(1, 3, 1, 1).clone())
            self.register_buffer("std", STD.view(1, 3, 1, 1).clone())

        def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
            made = ((pixels.float() * SCALE - self.mean) / self.std).bfloat16()
            return made, ops.digest(made, dim=0)

    module = Normalize()
    backend = Backend(PassManager(), then)
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    for _ in range(2):
        for one, other in zip(compiled(pixels), module(pixels), strict=True):
            assert torch.equal(one, other)
        assert backend.manager.last_report().matches(NAME) == 1
        module.mean.add_(1)  # a buffer is no constant: the compiled graph must see it


def test_a_batch_of_any_size(pixels: Tensor, then: str) -> None:
    def model(pixels: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, ...]:
        made = ((pixels.float() - mean) / std).half()
        return made, ops.digest(made, dim=0)

    backend = Backend(PassManager(), then)
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    _, *values = per_channel(pixels, last=False)
    for given in (pixels, pixels[:2], pixels[:, :, :4].contiguous()):
        for one, other in zip(compiled(given, *values), model(given, *values), strict=True):
            assert torch.equal(one, other)
    assert backend.manager.last_report().matches(NAME) == 1


def read_between(p: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    centred = p.float() - m
    made = centred / s
    return made, ops.digest(made, dim=0), centred


def digest_of_another(p: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    made = (p.float() - m) / s
    return made, ops.digest(p, dim=0), ops.digest(made + 0, dim=0)


def digest_of_all(p: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    made = (p.float() - m) / s
    return made, ops.digest(made)


def hashed(features: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Model:
    def model(p: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        made = features(p, m, s)
        return made, ops.digest(made, dim=0)

    return model


def mean_over_height(p: Tensor, m: Tensor, s: Tensor) -> Tensor:
    rows = torch.cat([m.view(-1), m.view(-1), m.view(-1)])[:8, None]
    return (p.float() - rows) / s


def written_through_a_view(p: Tensor, m: Tensor, s: Tensor) -> Tensor:
    made = (p.float() - m) / s
    made[0] = 0
    return made


BY_THE_INVERSE = hashed(lambda p, m, s: (p.float() - m) * (1 / s))
NEAR_MISSES: dict[str, Model] = {
    "read between": read_between,
    "digest of another": digest_of_another,
    "digest of all": digest_of_all,
    "mean used twice": hashed(lambda p, m, s: (p.float() - m - m) / s),
    "mean over height": hashed(mean_over_height),
    "std broadcasts": hashed(lambda p, m, s: (p[:, :1].contiguous().float() - m) / s),
    "double": hashed(lambda p, m, s: (p.to(torch.float64) - m) / s),
    "double mean": hashed(lambda p, m, s: ((p.float() - m.double()) / s).to(torch.float32)),
    "half mean": hashed(lambda p, m, s: (p.float() - m.half()) / s),
    "half throughout": hashed(lambda p, m, s: (p.half() - m.half()) / s.half()),
    "to double at last": hashed(lambda p, m, s: ((p.float() - m) / s).double()),
    "by the inverse": BY_THE_INVERSE,
    "scaled after the mean": hashed(lambda p, m, s: (p.float() - m) * SCALE / s),
    "scaled by division": hashed(lambda p, m, s: (p.float() / 255 - m) / s),
    "scaled by a channel": hashed(lambda p, m, s: (p.float() * s - m) / s),
    "scaled by a tensor": hashed(lambda p, m, s: (p.float() * torch.tensor(SCALE) - m) / s),
    "scaled by a double": hashed(
        lambda p, m, s: (p.float() * torch.tensor(SCALE, dtype=torch.float64) - m) / s
    ),
    "one mean for all": hashed(lambda p, m, s: (p.float() - 0.5) / 0.5),
    "the other way round": hashed(lambda p, m, s: (m - p.float()) / s),
    "alpha": hashed(lambda p, m, s: torch.sub(p.float(), m, alpha=2) / s),
    "rounded": hashed(lambda p, m, s: torch.div(p.float() - m, s, rounding_mode="floor")),
    "another step between": hashed(lambda p, m, s: ((p.float() - m).abs() / s).half()),
    "strided pixels": hashed(lambda p, m, s: (p.permute(0, 1, 3, 2).float() - m) / s),
    "wider pixels": hashed(lambda p, m, s: (p.to(torch.int16).float() - m) / s),
    "written before the digest": hashed(lambda p, m, s: ((p.float() - m) / s).add_(1)),
    "written through a view": hashed(written_through_a_view),
}


# Each takes a compilation. These have a reason each to be left alone, and the rest is variations.
DISTINCT = {
    "read between",
    "digest of all",
    "mean over height",
    "half mean",
    "by the inverse",
    "strided pixels",
    "written before the digest",
}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, id=name, marks=[] if name in DISTINCT else pytest.mark.slow)
        for name, model in NEAR_MISSES.items()
    ],
)
def test_a_near_miss_is_left_alone(pixels: Tensor, model: Model) -> None:
    _, mean, std = per_channel(pixels, last=False)
    assert run(model, pixels, mean.clone(), std.clone()) == 0


Write = Callable[[Tensor, Tensor], object]

WRITES: dict[str, Write] = {
    "mean": lambda m, s: m.add_(1),
    "by out": lambda m, s: torch.add(s, 1, out=s),
    "by a norm": lambda m, s: torch.batch_norm(
        torch.ones(2, 3), None, None, m.view(-1), s.view(-1), True, 0.1, 1e-5, False
    ),
    "by foreach": lambda m, s: torch._foreach_mul_([m, s], 2.0),
    "through data": lambda m, s: m.data.add_(1),
}


def fused_around(write: Write, pixels: Tensor, then: str = "eager") -> int:
    def model(p: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        centred = p.float() - m
        write(m, s)
        p.add_(1)
        made = centred / s
        return made, ops.digest(made, dim=0), p + m + s

    _, mean, std = per_channel(pixels, last=False)
    return run(model, pixels.clone(), mean.clone(), std.clone(), then=then)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_between_the_steps_counts(pixels: Tensor, write: Write) -> None:
    assert fused_around(write, pixels) == 1


def test_either_compiler_sees_the_writes(pixels: Tensor, then: str) -> None:
    def write(m: Tensor, s: Tensor) -> None:
        for one in WRITES.values():
            one(m, s)

    assert fused_around(write, pixels, then) == 1


def test_a_mean_may_be_trained(pixels: Tensor) -> None:
    mean = MEAN.view(3, 1, 1).clone().requires_grad_()

    def model(pixels: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        made = (pixels.float() - mean) / std
        return made, ops.digest(made, dim=0)

    gradients = []
    for call in (model, torch.compile(model, backend=Backend(PassManager(), "eager"))):
        made, _ = call(pixels, STD.view(3, 1, 1))
        (gradient,) = torch.autograd.grad(made.sum(), [mean])
        gradients.append(gradient)
    assert torch.equal(*gradients)


def test_exported_programs_are_rewritten(pixels: Tensor) -> None:
    class Model(torch.nn.Module):
        def forward(self, pixels: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, ...]:
            made = ((pixels.to(torch.float32) * SCALE - mean) / std).to(torch.bfloat16)
            return made, ops.digest(made, dim=0)

    args = per_channel(pixels, last=False)
    module = torch.export.export(Model(), args).run_decompositions({}).module()
    manager = PassManager([FuseNormalizeDigest()])
    manager(module)
    assert manager.last_report().matches(NAME) == 1
    for one, other in zip(module(*args), Model()(*args), strict=True):
        assert torch.equal(one, other)
