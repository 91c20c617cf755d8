"""Tensors whose bytes differ from what they show: lazy, shrunk, sparse, or in a mode of torch."""

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import mmhash
from mmhash import InputTypeError, InputValueError
from mmhash.torch_tensor import is_tensor


@pytest.mark.parametrize("nbytes", [0, 1, 100, 399])
@pytest.mark.parametrize(
    "turn", [lambda x: x, lambda x: x.t(), lambda x: x[5:], lambda x: x[:, 9:]]
)
def test_a_storage_that_was_freed(nbytes: int, turn: Callable[[Any], Any]) -> None:
    tensor = torch.arange(100.0).reshape(10, 10)
    seen = turn(tensor)
    tensor.untyped_storage().resize_(nbytes)
    with pytest.raises(InputValueError, match="less memory"):
        mmhash.key(seen)


def test_a_storage_that_is_long_enough() -> None:
    tensor = torch.arange(100.0)
    head = tensor[:10]
    expected = mmhash.key(head.clone())
    tensor.untyped_storage().resize_(40)
    assert mmhash.key(head) == expected
    assert mmhash.key(tensor[3:3]) == mmhash.key(torch.zeros(0))


def test_a_real_tensor_in_fake_mode_has_its_key_or_none() -> None:
    short, long = torch.randn(3, 4), torch.randn(300, 400)
    expected = mmhash.key(short)
    with FakeTensorMode():
        assert mmhash.key(short) == expected  # read from its memory, without torch
        with pytest.raises(InputTypeError, match="torch cannot read"):
            mmhash.key(long)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_lazy_conjugates_and_negatives(dtype: torch.dtype) -> None:
    values = torch.randn(4, 6, dtype=dtype)
    for lazy in (values.conj(), values.conj().t(), values.conj().imag, values.conj().imag[:, ::2]):
        resolved = lazy.resolve_conj().resolve_neg().contiguous()
        assert mmhash.key(lazy) == mmhash.key(resolved) == mmhash.key(resolved.numpy())


def test_modes_of_torch_do_not_count() -> None:
    values = torch.randn(4, 6)
    expected = mmhash.key(values.t().contiguous())
    with torch.device("meta"), torch.no_grad():
        assert mmhash.key(values.t()) == expected
    with torch.autograd.forward_ad.dual_level():
        assert mmhash.key(torch.autograd.forward_ad.make_dual(values, values).t()) == expected
    with torch.inference_mode():
        assert mmhash.key(values.t()) == expected


@pytest.mark.parametrize("half", [None, types.ModuleType("half")])
def test_torch_without_its_class_is_absent(monkeypatch: pytest.MonkeyPatch, half: Any) -> None:
    """Another thread may be importing it."""
    monkeypatch.setitem(sys.modules, "torch", half)
    assert not is_tensor(b"")
    assert mmhash.key(np.arange(3)) == mmhash.key(np.arange(3))
