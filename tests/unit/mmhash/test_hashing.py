import asyncio
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash import InputTypeError, InputValueError
from mmhash.cuda.device import Device
from mmhash.errors import DeviceError

A = np.arange(12, dtype=np.uint8)
B = np.arange(5, dtype=np.float32)


def test_keys_are_the_keys_of_the_items() -> None:
    assert mmhash.keys([A, b"x", [A, B]]) == [mmhash.key(A), mmhash.key(b"x"), mmhash.key([A, B])]
    assert mmhash.keys(iter((A, B)), algorithm="xxh3", tenant=bytes(32)) == [
        mmhash.key(item, algorithm="xxh3", tenant=bytes(32)) for item in (A, B)
    ]
    assert mmhash.keys([]) == []


@pytest.mark.parametrize("options", [{}, {"tenant": bytes(32)}, {"algorithm": "xxh3"}])
def test_a_long_list_of_short_items_has_their_keys(options: dict[str, Any]) -> None:
    arrays = [
        np.arange(size, dtype=dtype).reshape(-1, 2)
        for size in (0, 2, 48, 40_000)
        for dtype in ("<u1", "<f4", ">f4", "<c8")
    ]
    arrays += [arrays[4].T, arrays[4][::2], np.asfortranarray(arrays[5]), np.array(1.5)]
    tensors = [torch.zeros(array.shape, dtype=torch.bfloat16) for array in arrays]
    items = [*arrays, *tensors, *(array.tobytes() for array in arrays), [arrays[4], tensors[4]]]
    assert mmhash.keys(items, **options) == [mmhash.key(item, **options) for item in items]
    assert mmhash.keys(items, threads=1, **options) == mmhash.keys(items, **options)


@pytest.mark.parametrize(
    "options", [{}, {"tenant": bytes(32), "threads": 2}, {"algorithm": "xxh3"}]
)
@pytest.mark.parametrize("dtype", [torch.int16, torch.bfloat16, torch.complex64])
def test_a_long_list_of_tensors_has_their_keys(dtype: torch.dtype, options: dict[str, Any]) -> None:
    tensors = [torch.arange(2 * size).to(dtype).reshape(2, size) for size in range(1, 150)]
    tensors += [tensors[9]] * 64 + [torch.zeros(0, dtype=dtype)] + tensors[:9]
    expected = [mmhash.key(tensor, **options) for tensor in tensors]
    assert mmhash.keys(tensors, **options) == expected
    assert mmhash.keys(tuple(tensors), **options) == expected
    assert mmhash.keys(iter(tensors), **options) == expected


def test_an_error_names_its_item_in_a_long_list() -> None:
    with pytest.raises(InputTypeError, match=r"item 100: None"):
        mmhash.keys([torch.zeros(2)] * 100 + [None])


def test_pending_keys_can_be_awaited() -> None:
    async def ask() -> list[mmhash.Digest]:
        pending = mmhash.keys([A, [B]], wait=False)
        assert await pending == pending.wait()
        return await pending

    assert asyncio.run(ask()) == mmhash.keys([A, [B]])


@pytest.mark.parametrize("items", [A, b"ab", "ab", None, {A.tobytes(): 1}])
def test_keys_takes_a_list(items: object) -> None:
    with pytest.raises(InputTypeError, match="list of items"):
        mmhash.keys(items)  # type: ignore[arg-type]


def test_digest_takes_no_list() -> None:
    with pytest.raises(InputTypeError, match=r"keys\(\)"):
        mmhash.digest([A])


def test_nesting_is_bounded() -> None:
    nested: object = A
    for _ in range(16):
        nested = [nested]
    mmhash.key(nested)
    with pytest.raises(InputValueError, match="deeper than 16"):
        mmhash.key([nested])


def test_an_invalid_tenant_is_not_the_fault_of_an_item() -> None:
    with pytest.raises(InputValueError, match=r"^tenant must be 32 secret bytes"):
        mmhash.keys([b"item", np.zeros(3)], tenant=b"short")


@pytest.mark.parametrize("tenant", [bytearray(32), [1], "x" * 32])
def test_a_tenant_that_is_not_bytes_is_refused_by_type(tenant: Any, tmp_path: Path) -> None:
    (path := tmp_path / "file").touch()
    refused = f"^tenant must be bytes or None, not {type(tenant).__name__}$"
    with pytest.raises(InputTypeError, match=refused):
        mmhash.key(b"item", tenant=tenant)
    with pytest.raises(InputTypeError, match=refused):
        mmhash.keys([b"item"], tenant=tenant)
    with pytest.raises(InputTypeError, match=refused):
        mmhash.key_file(path, tenant=tenant)


NOISE = torch.randint(-(2**31), 2**31 - 1, (1 << 19,), dtype=torch.int32)
OPTIONS: list[dict[str, Any]] = [{}, {"algorithm": "xxh3"}, {"tenant": bytes(range(32))}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    ("shape", "split"),
    [
        ((64, 2048), {"counts": 64}),
        ((70, 1000), {"grids": [[1, 7]] * 10}),
        ((70, 1000), {"grids": [[1, 7], [3, 21]]}),
        ((70, 1000), {"counts": [0, 30, 30, 0, 10]}),
        ((1, 1, 70, 1000), {"counts": [35, 35], "dim": 2}),
        ((1, 1, 70, 1000), {"counts": [30, 40], "dim": 2}),
        ((2, 70, 1000), {"counts": 70, "dim": 1}),
        ((100, 2000), {"counts": [1] * 100}),
        ((8, 0), {"counts": 8}),
    ],
)
def test_bundles_on_a_gpu(
    request: pytest.FixtureRequest, shape: Any, split: dict[str, Any], options: dict[str, Any]
) -> None:
    feature = NOISE[: prod(shape)].reshape(shape)
    items = [item.clone() for item in mmhash.split(feature, **split)]
    expected = mmhash.keys(items, **options)
    request.getfixturevalue("on_device")
    assert mmhash.keys(mmhash.split(feature, **split), **options) == expected
    assert mmhash.keys(mmhash.split(feature, **split), wait=False, **options).wait() == expected


@pytest.mark.parametrize("options", OPTIONS)
def test_lists_on_a_gpu(request: pytest.FixtureRequest, options: dict[str, Any]) -> None:
    long = [NOISE[start : start + 20_000 + start // 9] for start in range(0, 400_000, 5_000)]
    items = [*long, b"x", [long[0], A], NOISE[:5], *long[:3], NOISE.numpy(), NOISE[::2]]
    expected = mmhash.keys(items, **options)
    request.getfixturevalue("on_device")
    assert mmhash.keys(items, **options) == expected
    assert [mmhash.key(item, **options) for item in items] == expected


def test_an_iterator_on_a_gpu_may_fill_one_tensor_again(request: pytest.FixtureRequest) -> None:
    tensors = [NOISE[start : start + 30_000].clone() for start in range(70)]
    expected = mmhash.keys(tensors)
    request.getfixturevalue("on_device")
    buffer = torch.empty_like(tensors[0])
    assert mmhash.keys(buffer.copy_(tensor) for tensor in tensors) == expected


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_digests_on_a_gpu(request: pytest.FixtureRequest, algorithm: str) -> None:
    expected = mmhash.digest(NOISE, algorithm=algorithm)
    request.getfixturevalue("on_device")
    assert mmhash.digest(NOISE, algorithm=algorithm) == expected


@pytest.mark.filterwarnings("ignore:GPU 0 cannot hash")
def test_a_gpu_that_cannot_hash(
    request: pytest.FixtureRequest, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = NOISE.reshape(64, -1)
    expected = mmhash.digest(NOISE), mmhash.key(NOISE), mmhash.keys(list(bundle.split(1)))
    request.getfixturevalue("on_device")

    def refuse(*_: Any) -> Any:
        raise DeviceError("no room for scratch")

    monkeypatch.setattr(device, "slot", refuse)
    with pytest.warns(RuntimeWarning, match="no room for scratch"):
        assert mmhash.digest(NOISE) == expected[0]
    with pytest.warns(RuntimeWarning, match="no room for scratch"):
        assert mmhash.keys([NOISE, NOISE]) == [expected[1]] * 2
    assert mmhash.key(NOISE) == expected[1]
    assert mmhash.keys(mmhash.split(bundle, counts=64)) == expected[2]
