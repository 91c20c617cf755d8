import pytest
import torch

import mmhash
from mmhash import InputValueError, ops
from mmhash.digest import ALGORITHMS
from mmhash.ops import hashing

# 0 to 3 MiB: alone and on several threads, one leaf and many.
SHAPES = [(5,), (), (0,), (3, 4), (0, 4), (3, 0), (2, 700, 900), (1, 600, 600)]


def hexes(rows: torch.Tensor) -> list[str]:
    return [bytes(row).hex() for row in rows.tolist()]


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_digest_is_the_librarys(shape: tuple[int, ...], algorithm: str) -> None:
    x = noise(*shape)
    found = ops.digest(x, algorithm=algorithm)
    assert found.dtype == torch.uint8
    assert bytes(found.tolist()) == mmhash.digest(x, algorithm=algorithm).bytes


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shape", [*SHAPES[2:], (400, 64, 64)])
def test_a_slice_has_the_digest_that_it_has_alone(shape: tuple[int, ...], algorithm: str) -> None:
    x = noise(*shape, dtype=torch.bfloat16)
    found = ops.digest(x, algorithm=algorithm, dim=0)
    assert found.shape == (shape[0], 32 if algorithm == "blake3" else 16)
    assert hexes(found) == [mmhash.digest(part, algorithm=algorithm).hex() for part in x]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_parts_of_any_dtype_and_size_have_their_digests(algorithm: str) -> None:
    parts = [noise(3), noise(0), noise(600, 500), noise(4, 6, dtype=torch.float16).t(), noise()]
    found = ops.digests(parts, algorithm=algorithm)
    assert hexes(found) == [mmhash.digest(part, algorithm=algorithm).hex() for part in parts]


@pytest.mark.parametrize("dim", [1, -1, 2])
def test_slices_are_of_dim_0_alone(dim: int) -> None:
    with pytest.raises(InputValueError, match="dim 0"):
        ops.digest(noise(3, 4), dim=dim)


def test_an_unknown_algorithm_is_refused() -> None:
    for call in (lambda: ops.digest(noise(3), algorithm="md5"), lambda: ops.digests([noise(3)], algorithm="md5")):  # fmt: skip
        with pytest.raises(InputValueError, match="blake3, xxh3"):
            call()


def test_parts_of_none_or_of_two_devices_are_refused() -> None:
    with pytest.raises(InputValueError, match="one part"):
        ops.digests([])
    with pytest.raises(InputValueError, match="one device"):
        torch.ops.mmhash.digests([noise(3), torch.empty(3, device="meta")])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dim", [None, 0])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of the check itself
def test_opcheck_digest(algorithm: str, dim: int | None, requires_grad: bool) -> None:
    x = noise(3, 4).requires_grad_(requires_grad)
    torch.library.opcheck(hashing.digest, (x,), {"algorithm": algorithm, "dim": dim})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_opcheck_digests(algorithm: str) -> None:
    parts = [noise(3), noise(2, 2, dtype=torch.float16)]
    torch.library.opcheck(hashing.digests, (parts,), {"algorithm": algorithm})
