from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash import cuda
from mmhash import leaves as leaves_module
from mmhash.errors import DeviceError, TransportError
from mmhash.leaves import Leaves, Options
from mmhash.torch_tensor import DeviceBytes
from mmhash.view import View

NOISE = torch.from_numpy(np.random.default_rng(5).integers(0, 256, 10_000, dtype=np.uint8))
OPTIONS = Options("blake3", None, None)


class OnGpu:
    """A handle of bytes of NOISE, as if they were on a GPU."""

    def __init__(self, start: int, nbytes: int, check_lease: Any = None, device: int = 0) -> None:
        content = DeviceBytes(device, NOISE.data_ptr() + start, nbytes, NOISE[start:][:nbytes])
        self._view = View("tensor", "uint8", (nbytes,), content, check_lease=check_lease)
        self.key = mmhash.key(NOISE[start:][:nbytes]).bytes

    def __mmhash_view__(self) -> View:
        return self._view


def keys_of(items: list[OnGpu], options: Options = OPTIONS) -> list[bytes]:
    leaves = Leaves(options)
    numbers = [leaves.add(item) for item in items]
    leaves.start()
    found = leaves.collect()
    return [found[number] for number in numbers]  # type: ignore[index]


@pytest.mark.parametrize("count", [1, 31, 32, 33, 64, 100])
@pytest.mark.usefixtures("device")
def test_keys_of_groups(count: int) -> None:
    items = [OnGpu(number, 2 * number) for number in range(count)]
    assert keys_of(items) == [item.key for item in items]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.usefixtures("device")
def test_keys_of_a_list_on_two_devices(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that fails copies its tensors to the host."""

    def locate(items: Any) -> Any:
        addresses = [tensor.data_ptr() for tensor in items]
        lengths, shapes = [len(tensor) for tensor in items], [tuple(t.shape) for t in items]
        return [number % 2 for number in range(10)], addresses, lengths, "uint8", shapes

    monkeypatch.setattr(leaves_module, "locate_list", locate)
    if fails:
        monkeypatch.setattr(cuda, "hash_segments", fail)
    leaves = Leaves(OPTIONS)
    tensors = [NOISE[number : 3 * number] for number in range(100)]
    numbers: list[int | bytes] = []

    def hash_all() -> dict[int, bytes]:
        for start in range(0, 100, 10):
            numbers.extend(leaves.add_list(tensors[start : start + 10]) or [])
        leaves.start()
        return leaves.collect()

    if fails:
        with pytest.warns(RuntimeWarning, match="no GPU"):
            found = hash_all()
    else:
        found = hash_all()
    assert numbers == list(range(100))
    assert [found[number] for number in range(100)] == [mmhash.key(each).bytes for each in tensors]


def fail(*_: object, **__: object) -> None:
    raise DeviceError("no GPU")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.filterwarnings("ignore:GPU 0 cannot hash")
@pytest.mark.usefixtures("device")
def test_leases_are_checked_when_the_bytes_were_read(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []

    def lose() -> None:
        raise TransportError("the lease is over")

    if fails:
        monkeypatch.setattr(cuda, "hash_segments", fail)
    items = [OnGpu(0, 100, lambda: checked.append(1)), OnGpu(0, 100), OnGpu(0, 100, lose)]
    with pytest.raises(TransportError, match="lease is over"):
        keys_of(items)
    assert checked == [1]
