"""application/x-npy: an array has the library's key, and other files are refused."""

import io
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import mmhash
from mmhash.dtypes import ITEM_SIZE
from mmhash_service.items.npy import parse_header
from mmhash_service.problems.problem import Problem
from tests.support.responses import items_of, problem_of

KIND = {"content-type": "application/x-npy"}
DTYPES = [name for name in ITEM_SIZE if hasattr(np, name)]


def file(array: Any, *, version: tuple[int, int] = (1, 0)) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), version=version, allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize("step", [1, 7, 128, 1 << 20])
def test_an_array_in_any_pieces_has_its_key(
    client: httpx.Client, step: int, version: tuple[int, int]
) -> None:
    array = np.arange(600, dtype=np.float32).reshape(20, 30)
    body = file(array, version=version)

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(body), step):
            yield body[at : at + step]

    (item,) = items_of(client.post("/hash", content=pieces(), headers=KIND))
    assert item["key"] == mmhash.key(array).hex()
    assert (item["dtype"], item["shape"]) == ("float32", [20, 30])


def test_a_part_of_a_form_may_be_an_array(client: httpx.Client) -> None:
    array = np.ones((2, 3), np.int8)
    (item,) = items_of(client.post("/hash", files={"x": ("x", file(array), *KIND.values())}))
    assert (item["name"], item["key"]) == ("x", mmhash.key(array).hex())


@given(
    st.sampled_from(DTYPES).flatmap(
        lambda name: arrays_of.arrays(name, arrays_of.array_shapes(min_dims=0, min_side=0))
    )
)
def test_a_header_says_what_a_key_frames(array: np.ndarray[Any, Any]) -> None:
    content = file(array)
    tensor, length = parse_header(content)
    assert tensor == (array.dtype.name, array.shape)
    assert content[length:] == array.tobytes()


REFUSED = {
    "nothing": b"",
    "another file": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "part of a header": file(np.zeros(3))[:40],
    "too few elements": file(np.zeros(3))[:-1],
    "too many elements": file(np.zeros(3)) + b"0",
    "Fortran order": file(np.asfortranarray(np.zeros((2, 3)))),
    "big-endian": file(np.zeros(3, ">f4")),
    "records": file(np.zeros(3, [("a", "f4")])),
    "a pickle": file(np.array([{}], dtype=object)),
    "text": file(np.array(["a"])),
    "negative sizes": file(np.zeros((2, 3))).replace(b"(2, 3)", b"(-2,-3)"),
    "booleans as sizes": file(np.zeros((2, 3))).replace(b"(2, 3), }  ", b"(True,6), }"),
    "a call": file(np.zeros((2, 3))).replace(b"(2, 3)", b"exit()"),
    "a header of 4 GB": b"\x93NUMPY\x02\x00" + b"\xff" * 2000,
    "version 3": file(np.zeros(3), version=(3, 0)),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_no_other_file_is_read(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/hash", content=body, headers=KIND)
    assert problem_of(answer) == (422, "invalid-tensor")


@given(st.binary(max_size=64))
def test_any_header_is_read_or_refused(header: bytes) -> None:
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    try:
        (_, shape), _ = parse_header(content)
    except Problem:
        return
    assert all(size >= 0 for size in shape)
