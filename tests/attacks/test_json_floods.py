"""JSON that is deep, has a million names or a number of a million digits, to hold the parser for seconds.

Its length and its values are counted before it is parsed, and a thread parses it, not the event loop.
"""

import json
from typing import Any

import pytest

from tests.support.responses import refusal_of

CALLS = ["/hash", "/pad", "/blocks", "/annotate?engine=vllm", "/annotate?engine=sglang"]
JSON = {"content-type": "application/json"}

INVALID = {
    "nothing": b"",
    "depth": b"[" * 100_000 + b"]" * 100_000,
    "depth in a member": b'{"items":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "depth of objects": b'{"a":' * 70_000 + b"1" + b"}" * 70_000,
    "no end": b'{"items":[{"kind":"bytes","data":"',
    "a number of many digits": b'{"items":' + b"9" * 1_000_000 + b"}",
    "a number's exponent": b'{"items":1e999999999}',
    "NaN": b'{"items":NaN}',
    "half a surrogate pair": b'{"\\ud800":1}',
    "no utf-8": b'{"items":"\xff\xfe"}',
    "utf-16": '{"items":[]}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "two documents": b"{}{}",
    "a comment": b'{/**/"items":[]}',
    "null": b"null",
    "a list": b"[]",
    "NUL": b'{"items":[]}\0',
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", INVALID)
def test_such_json_is_refused(server: Any, call: str, name: str) -> None:
    answer = server.client.post(call, content=INVALID[name], headers=JSON)
    assert refusal_of(answer) in {"invalid-json", "body-too-large"}


TOO_LARGE = {
    "numbers": b'{"items":[' + b"0," * 1_000_000 + b"0]}",
    "names": b'{"a":0' + b"".join(b',"%d":0' % n for n in range(200_000)) + b"}",
    "lists": b'{"items":[' + b"[]," * 200_000 + b"[]]}",
    "bytes": b'{"items":[{"kind":"bytes","data":"' + b"A" * (5 << 20) + b'"}]}',
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", TOO_LARGE)
def test_too_much_json_is_refused(server: Any, call: str, name: str) -> None:
    answer = server.client.post(call, content=TOO_LARGE[name], headers=JSON)
    assert refusal_of(answer) == "body-too-large"


def test_items_are_counted(server: Any) -> None:
    items = [{"kind": "bytes", "data": ""}] * 51
    assert refusal_of(server.hash_json(*items)) == "too-many-items"
    part = {"type": "image_url", "image_url": {"url": "data:;base64,YQ=="}}
    request = {"messages": [{"content": [part] * 51}]}
    answer = server.client.post("/annotate", json=request, params={"engine": "vllm"})
    assert refusal_of(answer) == "too-many-items"


@pytest.mark.parametrize(
    "item",
    [
        {"kind": "bytes"},
        {"kind": "bytes", "data": "AA=="[:3]},
        {"kind": "bytes", "data": "A A="},
        {"kind": "bytes", "data": "AA==AA=="},
        {"kind": "bytes", "data": "_-=="},
        {"kind": "bytes", "data": "", "url": "data:,"},
        {"kind": "tensor", "data": "", "dtype": "uint8"},
        {"kind": "tensor", "data": "", "dtype": "uint8", "shape": [2**63]},
        {"kind": "tensor", "data": "", "dtype": "uint8", "shape": [-1]},
        {"kind": "tensor", "data": "", "dtype": "uint8", "shape": [True]},
        {"kind": "tensor", "data": "", "dtype": "uint8", "shape": ["1"]},
        {"kind": "tensor", "data": "", "dtype": "uint8", "shape": [0] * 33},
        {"kind": "tensor", "data": "", "dtype": "uint8", "shape": [2**62] * 32},
        {"kind": "list", "data": ""},
        {"kind": "bytes", "data": "", "Kind": "image"},
        {"kind": "bytes", "data": "", "name": "a" * 2000},
        {"kind": "bytes", "url": "data:,#a"},
        {"kind": "bytes", "url": "data:," + "%41" * 100_001},
        {"kind": "bytes", "url": "data:base64"},
    ],
    ids=lambda item: json.dumps(item)[:60],
)
def test_an_item_that_is_amiss_is_refused(server: Any, item: dict[str, Any]) -> None:
    found = refusal_of(server.hash_json(item))
    assert found in {
        "invalid-json", "invalid-base64", "invalid-tensor", "invalid-url",
    }  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        {"spans": [{"start": 0, "end": 2**62, "hash": "0" * 16}]},
        {"spans": [{"start": 3, "end": 1, "hash": "0" * 16}]},
        {
            "spans": [
                {"start": 0, "end": 2, "hash": "0" * 16},
                {"start": 1, "end": 3, "hash": "1" * 16},
            ]
        },
        {"spans": [{"start": 0, "end": 1, "hash": "0x" + "0" * 14}]},
        {"spans": [{"start": 0, "end": 1, "hash": "\u0660" * 16}]},
        {"spans": [{"start": 0, "end": 1}]},
        {"input_ids": [-1]},
        {"input_ids": [2**64]},
        {"input_ids": [1.0]},
        {"engine": "sglang@99.99.99"},
        {"engine": "sglang@0.5." + "9" * 1000},
        {"engine": "../../etc/passwd"},
    ],
    ids=lambda body: json.dumps(body)[:60],
)
@pytest.mark.parametrize("call", ["/pad", "/blocks"])
def test_spans_and_ids_that_are_amiss_are_refused(
    server: Any, call: str, body: dict[str, Any]
) -> None:
    base: dict[str, Any] = {"engine": "sglang", "input_ids": [1, 2, 3], "spans": []}
    if call == "/blocks":
        base["block_size"] = 2
    answer = server.client.post(call, json={**base, **body})
    assert refusal_of(answer) in {
        "invalid-json", "refused-by-engine", "unknown-engine",
    }  # fmt: skip
