"""Copies that no machine has the memory for are refused before they are made."""

from array import array

import numpy as np
import pytest
import torch

from mmhash.errors import InputValueError, LimitError
from mmhash.memory import array_as_list, check_copy, in_c_order


def test_a_copy_of_more_than_the_machine_has_is_refused() -> None:
    check_copy("an array", 1 << 20)
    with pytest.raises(LimitError, match=f"an array takes more memory .* {1 << 60} bytes"):
        check_copy("an array", 1 << 60)


def test_arrays_in_c_order_are_not_copied() -> None:
    values = np.arange(6).reshape(2, 3)
    assert in_c_order(values) is values
    turned = in_c_order(values.T)
    assert turned.flags.c_contiguous
    assert np.array_equal(turned, values.T)
    assert in_c_order(np.array(3)).shape == (1,)
    with pytest.raises(LimitError):
        in_c_order(np.broadcast_to(np.int64(0), (1 << 50,)))


@pytest.mark.parametrize("values", [np.arange(4), torch.arange(4), array("q", range(4))])
def test_arrays_become_lists_if_they_are_not_too_long(values: object) -> None:
    assert array_as_list("counts", values, 4) == [0, 1, 2, 3]
    if not isinstance(values, array):  # its numbers are in memory already
        with pytest.raises(InputValueError, match="counts holds more than 3 numbers"):
            array_as_list("counts", values, 3)


@pytest.mark.parametrize("values", [[1, 2], (1, 2), "12", None])
def test_other_values_stay_as_they_are(values: object) -> None:
    assert array_as_list("counts", values, 1) is values
