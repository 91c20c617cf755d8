import array
import ctypes
import mmap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import mmhash
from mmhash import DeviceError, InputTypeError
from mmhash.dtypes import ITEM_SIZE
from mmhash.torch_tensor import HOST, copy_bytes, locate_list
from mmhash.view import view_of

BYTES = bytes(range(48))
ARRAY = np.frombuffer(BYTES, np.uint8)


class Exporter:
    """An array that is reached through DLPack alone."""

    def __init__(self, inner: Any, device: tuple[int, int] | None = None) -> None:
        self.inner = inner
        self.device = device

    def __dlpack__(self, **options: Any) -> Any:
        if self.device:
            raise BufferError("not here")
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.device or self.inner.__dlpack_device__()


def same(left: Any, right: Any) -> bool:
    return mmhash.key(left) == mmhash.key(right) and mmhash.digest(left) == mmhash.digest(right)


@pytest.mark.parametrize(
    "data",
    [bytearray(BYTES), memoryview(BYTES), memoryview(BYTES).cast("I"), memoryview(BYTES).cast("B", (6, 8)),
     array.array("b", BYTES), (ctypes.c_uint32 * 12).from_buffer_copy(BYTES),
     memoryview((ctypes.c_uint32 * 12).from_buffer_copy(BYTES)), memoryview(bytes(reversed(BYTES)))[::-1]],
)  # fmt: skip
def test_bytes_are_bytes_whatever_holds_them(data: Any) -> None:
    assert same(data, BYTES)


def test_mapped_files(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(BYTES)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert same(mapped, BYTES)
    assert same(np.memmap(path, np.uint8, "r", shape=(6, 8)), ARRAY.reshape(6, 8))


@pytest.mark.parametrize("dtype", ITEM_SIZE)
def test_every_dtype_of_the_spec(dtype: str) -> None:
    held = []
    if hasattr(torch, dtype):
        held.append(torch.tensor(bytearray(BYTES), dtype=torch.uint8).view(getattr(torch, dtype)))
    if dtype in np.sctypeDict:
        held.append(ARRAY.view(dtype))
    elif hasattr(ml_dtypes, dtype):
        held.append(ARRAY.view(getattr(ml_dtypes, dtype)))
    assert held
    for values in held:
        view = view_of(values)
        assert (view.kind, view.dtype, view.shape) == ("tensor", dtype, (48 // ITEM_SIZE[dtype],))
        assert view.data == BYTES  # type: ignore[comparison-overlap]
        assert same(values, held[0])


def test_autograd_does_not_change_a_key() -> None:
    values = torch.arange(6.0)
    with torch.inference_mode():
        inference = torch.arange(6.0)
    grown = values.clone().requires_grad_()
    for twin in (torch.nn.Parameter(values), grown, grown * 1, inference):
        assert same(twin, values)
    with torch.inference_mode():
        assert same(grown, values)


def test_a_dlpack_array_that_cannot_be_read() -> None:
    with pytest.raises(DeviceError, match="Exporter: neither numpy nor torch can"):
        mmhash.digest(Exporter(None, device=(10, 0)))


class Plain:
    """An object like any other."""


OBJECTS = np.array([object()])
FIELDS = np.zeros(2, [("a", "u1"), ("b", "f4")])


def fake_tensor() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.zeros(3))


def nested_tensor() -> torch.Tensor:
    parts = [torch.zeros(2), torch.zeros(3)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: None, "None"),
        (lambda: "text", "encode"),
        (lambda: Path("photo.png"), "key_file"),
        (lambda: 7, "builtins.int"),
        (lambda: 7.5, "builtins.float"),
        (dict, "builtins.dict"),
        (Plain, "Plain"),
        (lambda: OBJECTS, "object array"),
        (lambda: memoryview(OBJECTS), "object pointers"),
        (lambda: FIELDS, "structured"),
        (lambda: np.array(["a"]), "<U1"),
        (lambda: np.array([b"a"]), r"\|S1"),
        (lambda: np.array(["2026-11-21"], "M8[D]"), "datetime64"),
        (lambda: np.zeros(3, np.longdouble), "float128"),
        (lambda: np.zeros(3, ml_dtypes.int4), "int4"),
        (lambda: np.ma.masked_array([1, 2], [True, False]), "masked"),
        (lambda: torch.zeros(3, 3).to_sparse(), "sparse"),
        (lambda: torch.zeros(3, 3).to_mkldnn(), "mkldnn"),
        (torch.nn.UninitializedParameter, "Uninitialized"),
        (lambda: torch.zeros(3, 3).to_sparse_csr(), "sparse_csr"),
        (lambda: torch.zeros(3, device="meta"), "meta"),
        (lambda: torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.quint8), "quantized"),
        (nested_tensor, "nested"),
        (lambda: torch.nested.nested_tensor([torch.zeros(2)]), "nested"),
        (fake_tensor, "FakeTensor"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_refused_by_name(make: Callable[[], Any], words: str) -> None:
    item = make()
    for call in (mmhash.digest, mmhash.key, lambda item: mmhash.Hasher().update(item)):
        with pytest.raises(InputTypeError, match=words):
            call(item)


@pytest.mark.parametrize("nbytes", [0, 1024, 8 << 10, (8 << 10) + 2])
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_short_tensors_have_the_bytes_of_long_ones(dtype: str, nbytes: int) -> None:
    content = np.arange(nbytes, dtype=np.int32).astype(np.uint8)
    values = torch.arange(nbytes, dtype=torch.int32).to(torch.uint8).view(getattr(torch, dtype))
    view = view_of(values)
    assert view[:3] == ("tensor", dtype, tuple(values.shape))
    assert type(view.shape) is tuple
    assert bytes(view.on_host()) == content.tobytes()


def test_lists_that_are_not_located_together() -> None:
    values = torch.arange(12.0)
    freed = values.clone()
    freed.untyped_storage().resize_(0)
    shrunk = values.clone()[4:8]  # as long as its storage, but 4 elements further on
    shrunk.untyped_storage().resize_(16)
    complexes = torch.complex(values, values)
    others = [values[::2], complexes, complexes.conj().imag, torch._neg_view(values), freed, shrunk]
    others += [
        values.to("meta"),
        values[:0].to("meta"),
        torch.nn.Parameter(values),
    ]
    others += [torch.zeros(2049), torch.zeros(0)]
    assert locate_list([values, values.double()]) is None
    with warnings.catch_warnings(action="ignore"):  # torch warns that some layouts are prototypes
        for dense in (values.reshape(3, 4), torch.zeros(0, 4)):
            others += [dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()]
            if torch.backends.mkldnn.is_available():
                others += [dense.to_mkldnn()]
        others += [values.reshape(4, 3).to_sparse_bsr((2, 3))]
        others += [torch.quantize_per_tensor(values, 1, 0, torch.qint8)]
        others += [torch.nested.nested_tensor([values, values])]
    for item in [*others, values.numpy(), b"bytes", None]:
        assert locate_list([item, item]) is None
        assert locate_list([values, item]) is None
        assert locate_list([item, values]) is None


def test_within_a_function_transform_no_list_is_located() -> None:
    found: list[object] = []

    def look(values: torch.Tensor) -> torch.Tensor:
        found.append(locate_list([values] * 8))
        return values

    torch.vmap(look)(torch.zeros(3, 4))
    assert found == [None]


@pytest.mark.parametrize("shapes", [[(3, 4)], [(3, 4), (3, 4)], [(2,), (5, 1, 7), ()]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_a_list_is_located_as_its_tensors_are(
    dtype: torch.dtype, shapes: list[tuple[int, ...]]
) -> None:
    tensors = [torch.ones(shape).to(dtype) for shape in shapes]
    tensors.append(torch.arange(10).to(dtype)[3:5])
    located = locate_list(tensors)
    assert located is not None
    devices, addresses, lengths, name, of_shapes = located
    assert devices == [HOST] * len(tensors)
    views = [view_of(tensor) for tensor in tensors]
    assert [(name, shape) for shape in of_shapes] == [(view.dtype, view.shape) for view in views]
    contents = list(map(copy_bytes, addresses, lengths))
    assert contents == [bytes(view.on_host()) for view in views]


@pytest.mark.parametrize("item", [BYTES, ARRAY, torch.arange(6000).bfloat16(), ARRAY.reshape(6, 8)])
def test_read_in_place(item: Any) -> None:
    address = np.frombuffer(view_of(item).data, np.uint8).ctypes.data
    start = (
        item.data_ptr()
        if isinstance(item, torch.Tensor)
        else np.frombuffer(item, np.uint8).ctypes.data
    )
    assert address == start


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64"])
def test_a_gpu_tensor_has_the_key_of_its_host_copy(dtype: str) -> None:
    values = torch.arange(60).to(getattr(torch, dtype)).reshape(5, 12)
    assert same(values.cuda(), values)
    assert same(values.cuda().T, values.T)
