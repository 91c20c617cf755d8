import numpy as np
import pytest
import torch

import mmhash
from mmhash import leaves as leaves_module
from mmhash.cpu import hash_bytes
from mmhash.errors import DeviceError, TransportError
from mmhash.framing import frame
from mmhash.leaves import Leaves, Options
from mmhash.torch_tensor import Located

NOISE = torch.from_numpy(np.random.default_rng(5).integers(0, 256, 10_000, dtype=np.uint8))
OPTIONS = Options("blake3", None, None, True)


def located(start: int, nbytes: int) -> Located:
    return 0, (NOISE.data_ptr() + start, nbytes), "uint8", (nbytes,)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 64, 100])
@pytest.mark.usefixtures("device")
def test_keys_of_groups(count: int) -> None:
    leaves = Leaves(OPTIONS)
    numbers = [leaves.add_located(located(n, 2 * n), NOISE) for n in range(count)]
    expected = [
        frame("tensor", "uint8", (2 * n,), hash_bytes(NOISE.numpy().data[n : 3 * n], "blake3"))
        for n in range(count)
    ]
    keys_of_leaves = leaves.start()()
    assert [keys_of_leaves[number] for number in numbers] == [key.bytes for key in expected]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.usefixtures("device")
def test_keys_of_a_list_on_two_devices(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that fails copies its tensors to the host."""
    if fails:
        monkeypatch.setattr(leaves_module, "launch_keys", fail)
        monkeypatch.setattr(leaves_module, "check_copy_to_host", lambda *_: None)
    leaves = Leaves(OPTIONS)
    tensors = [NOISE[number : 3 * number] for number in range(100)]
    numbers: list[int | bytes] = []
    for start in range(0, 100, 10):
        chunk = tensors[start : start + 10]
        addresses = [tensor.data_ptr() for tensor in chunk]
        lengths, shapes = [len(tensor) for tensor in chunk], [tuple(t.shape) for t in chunk]
        located = [number % 2 for number in range(10)], addresses, lengths, "uint8", shapes
        numbers += leaves.add_list(located, chunk)
    assert numbers == list(range(100))
    keys_of_leaves = leaves.start()()
    assert [keys_of_leaves[number] for number in range(100)] == [
        mmhash.key(tensor).bytes for tensor in tensors
    ]


def fail(*_: object) -> None:
    raise DeviceError("no GPU")


@pytest.mark.usefixtures("device")
def test_leases_are_checked_when_the_keys_are_there() -> None:
    checked: list[int] = []

    def lose() -> None:
        raise TransportError("the lease is over")

    leaves = Leaves(OPTIONS)
    leaves.add_located(located(0, 100), NOISE, lambda: checked.append(1))
    leaves.add_located(located(0, 100), NOISE)
    leaves.add_located(located(0, 100), NOISE, lose)
    collect = leaves.start()
    assert checked == []
    with pytest.raises(TransportError, match="lease is over"):
        collect()
    assert checked == [1]
