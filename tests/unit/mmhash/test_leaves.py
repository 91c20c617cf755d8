import numpy as np
import pytest
import torch

from mmhash.cpu import hash_bytes
from mmhash.errors import TransportError
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
