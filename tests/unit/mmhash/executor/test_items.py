"""The cost and the identity of items, found without reading them."""

import numpy as np
import pytest
import torch

from mmhash.executor.items import ItemCost, cost_of, identity_of


def test_the_bytes_that_items_count() -> None:
    array = np.zeros((3, 4), np.float32)
    assert cost_of(b"abc") == ItemCost(3)
    assert (
        cost_of(array) == cost_of(torch.zeros(3, 4)) == cost_of(memoryview(array)) == ItemCost(48)
    )
    assert cost_of([array, [b"abc"]]) == ItemCost(51, parts=4)
    assert cost_of(torch.zeros(3, device="meta")).in_place is False
    assert cost_of(torch.zeros(3).to_sparse()).nbytes >= 0
    released = memoryview(b"abc")
    released.release()
    for nothing in (None, "text", 5, object(), released):
        assert cost_of(nothing) == ItemCost(0)


def test_an_endless_list_has_a_bounded_weight() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert cost_of(endless).nbytes == 0


def test_a_handle_is_not_opened_to_be_weighed() -> None:
    class Handle:
        nbytes = 7

        def __mmhash_view__(self) -> None:
            pytest.fail("opened")

    assert cost_of(Handle()) == ItemCost(7, in_place=False)
    assert cost_of([Handle()]).in_place is False


def test_identities() -> None:
    array = np.zeros(8, np.uint8)
    tensor = torch.from_numpy(array)
    assert identity_of(array) == identity_of(array[:])
    assert identity_of(tensor) == identity_of(tensor.view(8))
    others = [array, array[1:], array[::2], array.view(np.int8), array.reshape(2, 4), tensor,
              tensor.view(torch.int8), np.ma.masked_array(array), torch.nn.Parameter(torch.ones(2)),
              torch.zeros(3, device="meta"), torch.zeros(3, device="meta")]  # fmt: skip
    assert len({identity_of(other) for other in others}) == len(others)
