"""digest, key, keys and split of what lies on GPUs: the CPU's own values, with no further word."""

from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash import DeviceError, InputValueError, cuda
from mmhash.dtypes import ITEM_SIZE

pytestmark = pytest.mark.gpu

NOISE = torch.from_numpy(np.random.default_rng(5).integers(0, 256, 12 << 20, dtype=np.uint8))
DTYPES = [name for name in ITEM_SIZE if hasattr(torch, name)]
algorithms = pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])


def same(on_gpu: Any, on_cpu: Any, algorithm: str = "blake3") -> None:
    assert mmhash.digest(on_gpu, algorithm=algorithm) == mmhash.digest(on_cpu, algorithm=algorithm)
    assert mmhash.key(on_gpu, algorithm=algorithm) == mmhash.key(on_cpu, algorithm=algorithm)


@algorithms
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
def test_every_dtype(dtype: str, algorithm: str) -> None:
    values = NOISE[:48].view(getattr(torch, dtype))
    same(values.cuda(), values, algorithm)


@algorithms
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (7, 5), (3, 224, 224), (64, 1176)])
def test_every_shape(shape: tuple[int, ...], algorithm: str) -> None:
    values = NOISE[: 4 * max(1, int(np.prod(shape)))].view(torch.float32)[: int(np.prod(shape))]
    same(values.reshape(shape).cuda(), values.reshape(shape), algorithm)


@algorithms
def test_strides_and_lazy_views(algorithm: str) -> None:
    values = NOISE[: 60 * 50 * 8].view(torch.complex64).reshape(60, 50)
    values = torch.complex(values.real.nan_to_num(), values.imag.nan_to_num())
    for turn in (lambda x: x.T, lambda x: x[::2, 1:], lambda x: x.conj(), lambda x: x.conj().imag):
        same(turn(values.cuda()), turn(values), algorithm)


def test_bools_are_hashed_as_they_are_stored() -> None:
    values = NOISE[:6000].view(torch.bool).reshape(60, 100)
    for turn in (lambda x: x.T, lambda x: x[::2, 1:], lambda x: x[:1].expand(9, 100)):
        same(turn(values.cuda()), turn(values))


def test_a_tensor_whose_memory_was_freed() -> None:
    on_gpu = NOISE[:6000].cuda()
    on_gpu.untyped_storage().resize_(0)
    with pytest.raises(InputValueError, match="less memory"):
        mmhash.key(on_gpu)


@algorithms
def test_a_bundle_is_not_copied(algorithm: str) -> None:
    bundle = NOISE[: 1000 * 1176 * 2].view(torch.bfloat16).reshape(1000, 1176)
    grids = torch.tensor([[1, 10, 30], [1, 1, 1], [2, 5, 60], [3, 33, 1]])
    expected = mmhash.keys(mmhash.split(bundle, grids=grids), algorithm=algorithm)
    on_gpu = bundle.cuda()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    items = mmhash.split(on_gpu, grids=grids)
    assert mmhash.keys(items, algorithm=algorithm) == expected
    assert torch.cuda.max_memory_allocated() == before


@algorithms
@pytest.mark.parametrize("tenant", [None, bytes(32)])
def test_mixed_and_nested_lists(algorithm: str, tenant: bytes | None) -> None:
    parts = [NOISE[at : at + at * 7].clone() for at in range(0, 5000, 311)]

    def build(place: Any) -> list[Any]:
        return [place(parts[0]), b"bytes", [place(parts[1]), parts[2], [place(parts[3])]], [],
                *map(place, parts[4:]), parts[5].numpy()]  # fmt: skip

    options: dict[str, Any] = {"algorithm": algorithm, "tenant": tenant}
    expected = mmhash.keys(build(lambda part: part), **options)
    assert mmhash.keys(build(lambda part: part.cuda()), **options) == expected
    assert mmhash.keys(build(lambda part: part.cuda()), wait=False, **options).wait() == expected


@algorithms
def test_a_long_list(algorithm: str) -> None:
    parts = [NOISE[at : at + 999 + at // 7] for at in range(0, 100_000, 700)]
    on_gpu = [part.cuda() for part in parts]
    assert mmhash.keys(on_gpu, algorithm=algorithm) == mmhash.keys(parts, algorithm=algorithm)


def test_the_callers_stream_is_followed() -> None:
    """The value is that of what the stream has written, however long the writing takes."""
    data = torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")
    source = NOISE[: 8 << 20].cuda()
    expected = mmhash.digest(NOISE[: 8 << 20])
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(50):
            data.add_(1)
        data.copy_(source)
        assert mmhash.digest(data) == expected


def test_handles_may_be_waited_for_in_any_order() -> None:
    items = [NOISE[at : at + 300_000].cuda() for at in range(0, 9_000_000, 300_001)]
    expected = [mmhash.keys([item.cpu()]) for item in items]
    pending = [mmhash.keys([item], wait=False) for item in items]
    assert [handle.wait() for handle in reversed(pending)] == expected[::-1]
    assert pending[0].wait() is pending[0].wait()


@pytest.mark.filterwarnings("ignore:GPU 0 cannot hash")
def test_a_gpu_that_cannot_hash_costs_a_copy_and_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise DeviceError("no room for scratch")

    monkeypatch.setattr(cuda, "hash_segments", refuse)
    values = NOISE[:5000].view(torch.float32)
    with pytest.warns(RuntimeWarning, match=r"GPU 0 cannot hash \(no room for scratch\)"):
        mmhash.digest(values.cuda())
    same(values.cuda(), values)
    assert mmhash.keys([values.cuda(), values]) == [mmhash.key(values)] * 2


def test_dlpack_from_a_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    same(cupy.asarray(NOISE[:4096].numpy()), NOISE[:4096])


@algorithms
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_each_gpu_hashes_its_own(algorithm: str) -> None:
    parts = [NOISE[at : at + 100_001] for at in range(0, 1_000_000, 100_001)]
    placed = [part.to(f"cuda:{index % 2}") for index, part in enumerate(parts)]
    assert mmhash.keys(placed, algorithm=algorithm) == mmhash.keys(parts, algorithm=algorithm)
