"""application/x-safetensors: accepts and refuses the same files as the safetensors package."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import mmhash
from mmhash_service.items.safetensors import MAX_HEADER
from tests.support.responses import items_of, problem_of

KIND = {"content-type": "application/x-safetensors"}
U8 = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}


def file(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def u8(start: int, end: int) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}


@pytest.fixture
def tensors() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "features": rng.standard_normal((37, 1176)).astype(np.float16),
        "grid": np.array([[1, 2, 3]], np.int64),
        "nothing": np.zeros((0, 4), np.float32),
        "scalar": np.array(1.5, np.float64),
        "long": rng.integers(0, 256, 300_001, dtype=np.uint8),
    }


@pytest.mark.parametrize("step", [1, 8, 4096, 1 << 20])
def test_tensors_are_items_in_the_order_of_the_file(
    client: httpx.Client, tensors: dict[str, Any], tmp_path: Path, step: int
) -> None:
    if step == 1:
        del tensors["features"], tensors["long"]
    body = save(tensors, {"format": "pt"})

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(body), step):
            yield body[at : at + step]

    found = items_of(client.post("/hash", content=pieces(), headers=KIND))
    (tmp_path / "file").write_bytes(body)
    with safe_open(tmp_path / "file", "np") as opened:
        names = opened.offset_keys()
    assert sorted(item["name"] for item in found) == sorted(names)
    with_bytes = [name for name in names if tensors[name].nbytes]
    assert [item["name"] for item in found if item["nbytes"]] == with_bytes
    for item in found:
        array = tensors[item["name"]]
        assert (item["dtype"], tuple(item["shape"])) == (array.dtype.name, array.shape)
        assert item["key"] == mmhash.key(array).hex()


def test_a_part_of_a_form_may_be_such_a_file(client: httpx.Client, tensors: dict[str, Any]) -> None:
    files = [("a", ("a.bin", b"abc")), ("f", ("f", save(tensors), KIND["content-type"]))]
    found = items_of(client.post("/hash", files=files))
    assert [item["kind"] for item in found] == ["bytes"] + ["tensor"] * 5


def test_a_file_of_no_tensors_has_no_items(client: httpx.Client) -> None:
    assert items_of(client.post("/hash", content=file({}), headers=KIND)) == []


BAD_HEADERS = {
    "overlap": {"a": u8(0, 2), "b": u8(1, 3)},
    "hole": {"a": u8(0, 2), "b": u8(3, 5)},
    "late start": {"a": u8(1, 3)},
    "backwards": {"a": U8 | {"data_offsets": [2, 0]}},
    "too short for its shape": {"a": U8 | {"shape": [3]}},
    "overflow": {"a": U8 | {"shape": [2**62, 2**62], "data_offsets": [0, 2]}},
    "overflow to zero": {"a": U8 | {"shape": [2**32, 2**32], "data_offsets": [0, 0]}},
    "negative": {"a": U8 | {"shape": [-2]}},
    "no number": {"a": U8 | {"shape": [2.0]}},
    "a truth": {"a": U8 | {"shape": [True, 2]}},
    "one offset": {"a": U8 | {"data_offsets": [0]}},
    "no offsets": {"a": {"dtype": "U8", "shape": [2]}},
    "another field": {"a": U8 | {"x": 1}},
    "no tensor": {"a": 1},
    "metadata that is no text": {"__metadata__": {"a": 1}, "a": U8},
    "no object": b"[]",
    "blank first": b' {"a":1}',
    "no JSON": b"{not json}",
    "no UTF-8": b'{"\xff": 1}',
    "half a surrogate pair": b'{"\\ud800":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
    "a field twice": b'{"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
    "metadata twice": b'{"__metadata__":{},"__metadata__":{"a":"b"}}',
    "a text of the metadata twice": b'{"__metadata__":{"a":"b","a":"b"}}',
    "twice": b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
    b'"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
    "twice by an escape": b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
    b'"\\u0061":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
    "half a byte": {"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}},
    "deep": b'{"a":' + b"[" * 100_000,
    "many commas": b'{"a":[' + b"1," * 50_000 + b"1]}",
}


@pytest.mark.parametrize("header", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_bad_header_is_refused_before_its_data(client: httpx.Client, header: Any) -> None:
    answer = client.post("/hash", content=file(header, bytes(5)), headers=KIND)
    assert problem_of(answer) == (422, "damaged-safetensors")


@pytest.mark.parametrize("length", [0, 1, MAX_HEADER + 1, 2**63, 2**64 - 1])
def test_a_header_of_such_a_length_is_not_read(client: httpx.Client, length: int) -> None:
    body = length.to_bytes(8, "little") + b"{}"
    answer = client.post("/hash", content=body, headers=KIND)
    assert problem_of(answer) == (422, "damaged-safetensors")


@pytest.mark.parametrize("body", [b"", b"\2", file({})[:-1], file({"a": U8}, b"x")])
def test_a_file_that_ends_early_is_refused(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/hash", content=body, headers=KIND)
    assert problem_of(answer) == (422, "damaged-safetensors")


def test_a_file_with_trailing_bytes_is_refused(client: httpx.Client) -> None:
    answer = client.post("/hash", content=file({"a": U8}, b"abc"), headers=KIND)
    assert problem_of(answer) == (422, "damaged-safetensors")


def test_a_dtype_without_a_key_is_refused(client: httpx.Client) -> None:
    body = file({"a": U8 | {"dtype": "F6_E2M3"}}, b"ab")
    assert problem_of(client.post("/hash", content=body, headers=KIND)) == (422, "invalid-tensor")


def test_a_shape_of_too_many_axes_is_refused(client: httpx.Client) -> None:
    body = file({"a": U8 | {"shape": [1] * 33, "data_offsets": [0, 1]}}, b"a")
    assert problem_of(client.post("/hash", content=body, headers=KIND)) == (422, "invalid-tensor")


def test_too_many_tensors_are_refused(client: httpx.Client) -> None:
    body = file({str(at): u8(at, at + 1) for at in range(1001)}, bytes(1001))
    assert problem_of(client.post("/hash", content=body, headers=KIND)) == (413, "too-many-items")
