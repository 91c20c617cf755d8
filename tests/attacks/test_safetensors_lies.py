"""A safetensors file whose tensors overlap, leave holes, overflow or are named twice.

One loop places each tensor where the one before ended, and nothing is hashed before the header is right.
"""

import json
from typing import Any

import pytest

from tests.support.responses import refusal_of

KIND = "application/x-safetensors"


def file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def u8(start: int, end: int, shape: Any = None, **more: Any) -> dict[str, Any]:
    fields = {"dtype": "U8", "shape": [end - start] if shape is None else shape}
    return {**fields, "data_offsets": [start, end], **more}


HEADERS = {
    "overlap": {"a": u8(0, 4), "b": u8(2, 6)},
    "the same": {"a": u8(0, 4), "b": u8(0, 4)},
    "a hole": {"a": u8(0, 2), "b": u8(4, 8)},
    "a hole before": {"a": u8(2, 8)},
    "backwards": {"a": u8(4, 0, [0])},
    "negative": {"a": u8(-4, 4, [8])},
    "overflow": {"a": u8(0, 8, [2**63 - 1, 2**63 - 1])},
    "overflow to 8": {"a": u8(0, 8, [2**62, 4, 2**61, 8])},
    "beyond 64 bits": {"a": u8(0, 2**64, [2**64])},
    "a fraction": {"a": u8(0, 8, [8.0])},
    "true": {"a": u8(0, 1, [True])},
    "more than fits": {"a": u8(0, 8, [4])},
    "no shape": {"a": {"dtype": "U8", "data_offsets": [0, 8]}},
    "one offset": {"a": {"dtype": "U8", "shape": [8], "data_offsets": [8]}},
    "another field": {"a": u8(0, 8, strides=[1])},
    "a list": [u8(0, 8)],
    "a text": "a",
    "no object": {"a": 7},
    "metadata of numbers": {"__metadata__": {"a": 1}, "a": u8(0, 8)},
    "metadata that is a list": {"__metadata__": [], "a": u8(0, 8)},
    "half a byte": {"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}},
    "depth": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "numbers": b'{"a":' + b"9" * 500_000 + b"}",
    "commas": b"{" + b'"a":1,' * 60_000 + b'"b":1}',
    "twice": b'{"a":%b,"a":%b}' % ((json.dumps(u8(0, 4)).encode(),) * 2),
    "twice by an escape": b'{"a":%b,"\\u0061":%b}' % ((json.dumps(u8(0, 4)).encode(),) * 2),
    "a field twice": b'{"a":{"dtype":"U8","shape":[8],"shape":[4],"data_offsets":[0,8]}}',
    "no json": b"{" * 10,
    "twice, with quotes": b'{"\\"":%b,"\\u0022":%b}' % ((json.dumps(u8(0, 4)).encode(),) * 2),
    "NaN": b'{"a":NaN}',
    "half a surrogate pair": b'{"\\ud800":%b}' % json.dumps(u8(0, 8)).encode(),
    "no utf-8": b'{"\xff":1}',
    "blanks before": b'   {"a":1}',
}


@pytest.mark.parametrize("name", HEADERS)
def test_such_a_header_is_refused(server: Any, name: str) -> None:
    answer = server.hash(file(HEADERS[name], bytes(8)), KIND)
    assert refusal_of(answer) == "damaged-safetensors"


@pytest.mark.parametrize("length", [0, 1, (1 << 20) + 1, 2**32, 2**63, 2**64 - 1])
def test_a_length_that_no_header_has_is_refused(server: Any, length: int) -> None:
    body = file({"a": u8(0, 8)}, bytes(8), length)
    assert refusal_of(server.hash(body, KIND)) == "damaged-safetensors"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0" * 7,
        file({"a": u8(0, 8)}, bytes(7)),
        file({"a": u8(0, 8)}, bytes(9)),
        file({"a": u8(0, 8)}, length=1000),
        file({"a": u8(0, 2**62)}, bytes(100)),
    ],
)
def test_a_file_that_is_not_as_long_as_it_says_is_refused(server: Any, body: bytes) -> None:
    assert refusal_of(server.hash(body, KIND)) == "damaged-safetensors"


def test_a_dtype_that_the_spec_does_not_have_is_refused(server: Any) -> None:
    for dtype in ("O", "STR", "F80", "u8", ""):
        header = {"a": {"dtype": dtype, "shape": [8], "data_offsets": [0, 8]}}
        assert refusal_of(server.hash(file(header, bytes(8)), KIND)) == "invalid-tensor"


def test_more_tensors_than_a_body_may_have_are_refused(server: Any) -> None:
    header = {str(number): u8(0, 0) for number in range(1000)}
    assert refusal_of(server.hash(file(header), KIND)) == "too-many-items"
