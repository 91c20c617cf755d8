"""The tensors of a safetensors file, read in place."""

import os
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from mmhash.dtypes import ITEM_SIZE
from mmhash.errors import InputTypeError, InputValueError
from mmhash.io.files import map_file, open_file

# The spec's name for each dtype of the format. Any other dtype has no key.
DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "F4": "float4_e2m1fn_x2",
}
HEADER_LENGTH_SIZE = 8


class StoredTensor(NamedTuple):
    """A tensor of the file; its bytes are mapped but not yet read."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def read_tensors(path: str) -> Iterator[StoredTensor]:
    """Yield the tensors in file order.

    The tensors are valid only if the iteration ends without an error.
    """
    with open_file(path) as file:
        data = map_file(file)
        opened = os.fstat(file.fileno())
    if data is None:
        raise InputValueError("a safetensors file is read in place, and this file cannot be mapped")
    try:
        with safe_open(path, framework="np") as header:
            names = header.offset_keys()
            slices = [header.get_slice(name) for name in names]
            dtypes = [part.get_dtype() for part in slices]
            shapes = [tuple(part.get_shape()) for part in slices]
    except SafetensorError as error:
        raise InputValueError(f"not a safetensors file: {error}") from error

    if not os.path.samestat(opened, os.stat(path)):  # noqa: PTH116  (as the line above)
        raise InputValueError("the file was replaced while it was read")
    # The package has checked that tensors follow one another without gaps.
    start = HEADER_LENGTH_SIZE + int.from_bytes(data[:HEADER_LENGTH_SIZE], "little")
    for name, stored_dtype, stored_shape in zip(names, dtypes, shapes, strict=True):
        dtype, shape = _as_torch(name, stored_dtype, stored_shape)
        end = start + prod(shape) * ITEM_SIZE[dtype]
        yield StoredTensor(name, dtype, shape, data[start:end])
        start = end


def _as_torch(name: str, dtype: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and shape of the tensor after loading."""
    if dtype not in DTYPES:
        raise InputTypeError(f"tensor {name!r}: dtype {dtype} has no key")
    if dtype == "F4":  # the file counts half bytes; torch counts bytes
        if not shape or shape[-1] % 2:
            raise InputValueError(f"tensor {name!r}: an odd row of F4 does not fill its bytes")
        shape = (*shape[:-1], shape[-1] // 2)
    return DTYPES[dtype], shape
