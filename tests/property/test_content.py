"""Whatever holds the same content has the same key, and nothing else has."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import mmhash
from mmhash import Hasher
from mmhash.cpu import PARALLEL_FROM
from mmhash.states import XXH3_LEAF

MAX_LENGTH = 8 << 20
NOISE = np.random.default_rng(2026).integers(0, 256, MAX_LENGTH + 64, dtype=np.uint8)

EDGES = [64, 1024, 2048, 16 * 1024, XXH3_LEAF, 2 * XXH3_LEAF, PARALLEL_FROM, 4 << 20, MAX_LENGTH]
lengths = st.one_of(
    st.integers(0, 5000),
    st.integers(0, MAX_LENGTH),
    st.builds(
        lambda edge, off: min(MAX_LENGTH, max(0, edge + off)),
        st.sampled_from(EDGES),
        st.integers(-3, 3),
    ),
)
offsets = st.integers(0, 63)
algorithms = st.sampled_from(["blake3", "xxh3"])
dtypes = st.sampled_from(
    ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16",
     "float32", "float64", "complex64", "complex128"]
)  # fmt: skip
shapes = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=7)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    dtype, shape = np.dtype(draw(dtypes)), draw(shapes)
    nbytes = int(np.prod(shape)) * dtype.itemsize
    start = draw(st.integers(0, 4096)) * 16
    return NOISE[start : start + nbytes].view(dtype).reshape(shape)


@given(length=lengths, offset=offsets)
@example(length=0, offset=0)
@settings(max_examples=2 * settings().max_examples)
def test_blake3_is_the_package(length: int, offset: int) -> None:
    data = NOISE[offset : offset + length]
    assert mmhash.digest(data).bytes == blake3(data).digest()


@given(length=lengths, cuts=st.lists(st.floats(0, 1), max_size=12), algorithm=algorithms)
@settings(max_examples=2 * settings().max_examples)
def test_chunking_does_not_change_a_digest(length: int, cuts: list[float], algorithm: str) -> None:
    data = NOISE[:length]
    bounds = [0, *sorted(int(cut * length) for cut in cuts), length]
    hasher = Hasher(algorithm)
    for start, stop in pairwise(bounds):
        hasher.update(data[start:stop])
    assert hasher.digest() == mmhash.digest(data, algorithm=algorithm).bytes


@given(length=st.integers(1, 3 * XXH3_LEAF), at=st.integers(0), algorithm=algorithms)
def test_every_byte_changes_a_digest(length: int, at: int, algorithm: str) -> None:
    data = NOISE[:length].copy()
    before = mmhash.digest(data, algorithm=algorithm)
    data[at % length] ^= 1
    assert mmhash.digest(data, algorithm=algorithm) != before


@st.composite
def strided(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    values = draw(arrays())
    values = values.transpose(draw(st.permutations(range(values.ndim))))
    steps = st.slices(7) if values.ndim else st.nothing()
    index = tuple(draw(steps) for _ in range(values.ndim))
    return values[index]


@given(values=strided(), algorithm=algorithms)
@settings(max_examples=3 * settings().max_examples)
def test_strides_do_not_change_a_key(values: np.ndarray[Any, Any], algorithm: str) -> None:
    contiguous = np.array(values, order="C", copy=True)
    assert mmhash.digest(values, algorithm=algorithm) == mmhash.digest(
        contiguous.tobytes(), algorithm=algorithm
    )
    assert mmhash.key(values) == mmhash.key(contiguous)


class Exporter:
    """An array that is reached through DLPack alone."""

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __dlpack__(self, **options: Any) -> Any:
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.inner.__dlpack_device__()


@given(values=arrays())
@settings(max_examples=2 * settings().max_examples)
def test_the_container_does_not_change_a_key(values: np.ndarray[Any, Any]) -> None:
    tensor = torch.from_numpy(values.copy())
    big_endian = values.astype(values.dtype.newbyteorder(">"))
    expected = mmhash.key(values)
    assert mmhash.keys([tensor, Exporter(tensor), big_endian]) == [expected] * 3
    assert mmhash.digest(tensor) == mmhash.digest(values.tobytes())


@st.composite
def layouts(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], torch.Tensor]:
    """The same stretch of random bytes as numpy and as torch, with any strides; bools hold any."""
    dtype = np.dtype(draw(dtypes))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    strides = tuple(draw(st.integers(0, 9)) for _ in shape)
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    start = draw(st.integers(0, 4096)) * 16
    flat = NOISE[start : start + max(span, 1) * dtype.itemsize].view(dtype)
    array = np.lib.stride_tricks.as_strided(
        flat, shape, tuple(stride * dtype.itemsize for stride in strides)
    )
    tensor = torch.from_numpy(flat.view(np.uint8).copy()).view(getattr(torch, dtype.name))
    return array, tensor.as_strided(shape, strides)


@given(pair=layouts(), algorithm=algorithms)
@example(
    pair=(
        NOISE[:12].view(bool).reshape(3, 4).T,
        torch.from_numpy(NOISE[:12].copy()).view(torch.bool).reshape(3, 4).T,
    ),
    algorithm="blake3",
)
@settings(max_examples=3 * settings().max_examples)
def test_layouts_of_numpy_and_torch_are_one(
    pair: tuple[np.ndarray[Any, Any], torch.Tensor], algorithm: str
) -> None:
    array, tensor = pair
    content = array.tobytes()
    flat = np.frombuffer(content, array.dtype).reshape(array.shape)
    expected = mmhash.key(flat, algorithm=algorithm)
    assert mmhash.keys([array, tensor], algorithm=algorithm) == [expected] * 2
    assert mmhash.digest(tensor, algorithm=algorithm) == mmhash.digest(content, algorithm=algorithm)


@given(values=arrays(), other=arrays())
@settings(max_examples=3 * settings().max_examples)
def test_different_arrays_have_different_keys(
    values: np.ndarray[Any, Any], other: np.ndarray[Any, Any]
) -> None:
    same = (values.dtype, values.shape, values.tobytes()) == (
        other.dtype, other.shape, other.tobytes()
    )  # fmt: skip
    assert (mmhash.key(values) == mmhash.key(other)) == same


@given(values=arrays())
def test_dtype_shape_kind_and_nesting_change_a_key(values: np.ndarray[Any, Any]) -> None:
    unsigned = values.reshape(-1).view(np.uint8)
    assert mmhash.key(unsigned) != mmhash.key(unsigned.view(np.int8))
    spellings = [values, values[None], values[..., None][None], [values], [[values]],
                 [values, values], values.tobytes(), [values, [values]]]  # fmt: skip
    assert len(set(mmhash.keys(spellings))) == len(spellings)


@given(
    values=st.lists(arrays(), min_size=1, max_size=4),
    bounds=st.lists(st.integers(0, 4), min_size=1, max_size=3),
)
def test_the_nesting_of_a_list_changes_its_key(values: list[Any], bounds: list[int]) -> None:
    cuts = sorted({0, len(values), *(min(bound, len(values)) for bound in bounds)})
    nested = [values[start:stop] for start, stop in pairwise(cuts)]
    assert mmhash.key(nested) != mmhash.key(values)


grids = st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=6)


@given(grids=grids, width=st.integers(0, 9), dtype=dtypes, as_tensor=st.booleans())
def test_a_split_item_is_the_item_alone(
    grids: list[tuple[int, int, int]], width: int, dtype: str, as_tensor: bool
) -> None:
    alone = []
    start = 0
    for t, h, w in grids:
        nbytes = t * h * w * width * np.dtype(dtype).itemsize
        alone.append(NOISE[start : start + nbytes].view(dtype).reshape(t * h * w, width).copy())
        start += -(-nbytes // 16) * 16
    bundle = np.concatenate([*alone, np.zeros((0, width), dtype)])
    feature = torch.from_numpy(bundle) if as_tensor else bundle
    assert mmhash.keys(mmhash.split(feature, grids=grids)) == mmhash.keys(alone)
    counts = [len(item) for item in alone]
    assert mmhash.keys(mmhash.split(feature, counts=counts)) == mmhash.keys(alone)
