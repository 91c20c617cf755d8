"""The operators and passes on a GPU: a fused graph gives eager torch's features and our digests."""

from typing import Any

import pytest
import torch
from torch import Tensor

import mmhash
from mmhash import ops
from mmhash.compile import Backend, PassManager
from mmhash.digest import DIGEST_SIZE, Algorithm

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

BOTH = pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])


def noise(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")


def fused(pixels: Tensor, algorithm: Algorithm, then: str) -> tuple[Any, Any, int]:
    """The results of the compiled steps, those of eager torch, and the number of matches."""
    mean, std = torch.rand(2, 1, 3, 1, 1, device="cuda") + 0.1

    def steps(pixels: Tensor) -> tuple[Tensor, Tensor]:
        features = ((pixels.to(torch.float32) * (1 / 255) - mean) / std).to(torch.bfloat16)
        return features, ops.digest(features, algorithm=algorithm, dim=0)

    torch.compiler.reset()
    backend = Backend(PassManager(), then=then)
    found = torch.compile(steps, backend=backend)(pixels)
    matches = backend.manager.last_report().matches("fuse_normalize_digest")
    return found, steps(pixels), matches


@BOTH
@pytest.mark.parametrize("then", ["eager", "inductor"])
def test_a_fused_graph_is_bit_equal(algorithm: Algorithm, then: str) -> None:
    found, expected, matches = fused(noise(5, 3, 64, 52), algorithm, then)
    assert matches == 1
    assert torch.equal(found[0].view(torch.int16), expected[0].view(torch.int16))
    assert torch.equal(found[1], expected[1])


def test_where_the_kernel_would_be_slower_the_steps_stay() -> None:
    assert fused(noise(2, 3, 378, 378), "blake3", "eager")[2] == 0
    assert fused(noise(2, 3, 378, 378), "xxh3", "eager")[2] == 1


@BOTH
def test_digests_on_the_device(algorithm: Algorithm) -> None:
    values = torch.randn(2000, 37, device="cuda")
    rows = ops.digest(values, algorithm=algorithm, dim=0)
    parts = ops.digests([values[3], values[7:90], values[:0]], algorithm=algorithm)
    assert rows.shape == (2000, DIGEST_SIZE[algorithm])
    assert rows.is_cuda
    for row, item in [
        (rows[1999], values[1999]),
        (ops.digest(values, algorithm=algorithm), values),
        (parts[1], values[7:90]),
        (parts[2], values[:0]),
    ]:
        assert bytes(row.cpu().numpy()) == mmhash.digest(item, algorithm=algorithm).bytes


@BOTH
def test_opcheck(algorithm: str) -> None:
    values = torch.randn(4, 33, device="cuda")
    mean = torch.rand(3, device="cuda")
    named = {"algorithm": algorithm}
    torch.library.opcheck(torch.ops.mmhash.digest.default, (values,), named | {"dim": 0})
    torch.library.opcheck(torch.ops.mmhash.digests.default, ([values[0], values[1:]],), named)
    torch.library.opcheck(
        torch.ops.mmhash.normalize_digest.default,
        (noise(2, 3, 8, 8), 0.5, mean, mean + 1, torch.float16, algorithm, 1),
    )
