"""Tensors whose bytes are not what they seem: converted, wrapped, shrunk or somebody else's.

Copies keep every bit; memory that is not the tensor's own is refused before it is read.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import mmhash
from mmhash import InputError, InputTypeError, InputValueError

RAW = np.random.default_rng(9).integers(0, 256, 96, dtype=np.uint8)


@pytest.mark.parametrize(
    "turn", [lambda x: x.T, lambda x: x[::2], lambda x: x[:, 1::3], lambda x: x[:, :1], lambda x: x[2:3]]
)  # fmt: skip
@pytest.mark.parametrize(
    "dtype", ["bool", "float16", "float32", "complex64", "complex128", "int64"]
)
def test_a_layout_does_not_change_a_bit(dtype: str, turn: Callable[[Any], Any]) -> None:
    """Bools other than 0 and 1, and NaNs of any payload, are copied as they are."""
    values = RAW.view(dtype).reshape(3, -1)
    tensor = torch.from_numpy(RAW.copy()).view(getattr(torch, dtype)).reshape(3, -1)
    expected = mmhash.key(np.frombuffer(turn(values).tobytes(), dtype).reshape(turn(values).shape))
    assert mmhash.key(turn(values)) == expected
    assert mmhash.key(turn(tensor)) == expected
    assert mmhash.key(turn(tensor).requires_grad_(tensor.is_floating_point())) == expected


def test_overlapping_and_expanded_bools() -> None:
    raw = torch.from_numpy(RAW.copy())
    for take in (lambda x: x.as_strided((5, 8), (3, 1)), lambda x: x[:7].expand(4, 7),
                 lambda x: x.as_strided((6, 6), (1, 1), 9), lambda x: x.unfold(0, 9, 4)):  # fmt: skip
        expected = mmhash.key(take(raw).contiguous().numpy().view(bool))
        assert mmhash.key(take(raw.view(torch.bool))) == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.complex128, ml_dtypes.bfloat16])
def test_big_endian_numbers_are_swapped_bit_by_bit(dtype: Any) -> None:
    values = RAW.view(dtype)
    size = 8 if np.dtype(dtype).kind == "c" else values.itemsize
    swapped = RAW.reshape(-1, size)[:, ::-1].tobytes()
    big = np.frombuffer(swapped, np.dtype(dtype).newbyteorder(">"))
    assert mmhash.key(big) == mmhash.key(values)


@pytest.mark.parametrize(
    "transform",
    [
        lambda hash_it, x: torch.vmap(hash_it)(x),
        lambda hash_it, x: torch.vmap(torch.vmap(hash_it))(x),
        lambda hash_it, x: torch.func.grad(hash_it)(x),
        lambda hash_it, x: torch.func.jvp(hash_it, (x,), (x,)),
        torch.func.vjp,
        lambda hash_it, x: torch.func.hessian(hash_it)(x),
        lambda hash_it, x: torch.func.functionalize(hash_it)(x),
        lambda hash_it, x: torch.vmap(torch.func.grad(hash_it))(x),
        lambda hash_it, x: hash_it(torch._to_functional_tensor(x)),
    ],
)
@pytest.mark.parametrize("turn", [lambda x: x, lambda x: x[..., None].expand(*x.shape, 2)])
@pytest.mark.filterwarnings("ignore:.torch.jit")  # torch's own
def test_within_a_function_transform(transform: Any, turn: Any) -> None:
    found: list[Any] = []

    def hash_it(tensor: torch.Tensor) -> torch.Tensor:
        for call in (mmhash.key, mmhash.digest, mmhash.Hasher().update):
            try:
                found.append(call(turn(tensor)))
            except InputError as error:
                found.append(str(error))
        return tensor.sum()

    transform(hash_it, torch.randn(4, 6))
    assert len(found) == 3
    assert all(isinstance(one, str) and "transform" in one for one in found), found


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


def test_a_subclass_is_its_content() -> None:
    values = torch.randn(4, 6)
    for kind in (torch.nn.Buffer, torch.nn.Parameter):
        assert mmhash.key(kind(values)) == mmhash.key(values)
        assert mmhash.key(kind(values).t()) == mmhash.key(values.t())


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_what_has_no_bytes_is_refused_by_name() -> None:
    values = torch.randn(3, 4)
    refused = [
        FakeTensorMode().from_tensor(values),
        values.to("meta"),
        values.to_sparse(),
        values.to_sparse_csr(),
        values.to_mkldnn(),
        torch.quantize_per_tensor(values, 0.1, 0, torch.qint8),
        torch.nested.nested_tensor([values, values[:2]]),
        torch.nested.nested_tensor([values, values[:2]], layout=torch.jagged),
        torch.nn.UninitializedParameter(),
        values.untyped_storage(),
    ]
    for item in refused:
        with pytest.raises(InputTypeError):
            mmhash.key(item)


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


@pytest.mark.filterwarnings("ignore:.torch.jit")  # torch's own
def test_modes_of_torch_do_not_count() -> None:
    values = torch.randn(4, 6)
    expected = mmhash.key(values.t().contiguous())
    with torch.device("meta"), torch.no_grad():
        assert mmhash.key(values.t()) == expected
    with torch.autograd.forward_ad.dual_level():
        assert mmhash.key(torch.autograd.forward_ad.make_dual(values, values).t()) == expected
    with torch.inference_mode():
        assert mmhash.key(values.t()) == expected
