"""JSON that is deep, has a million names or a number of a million digits, to hold the parser for seconds.

Its length and its values are counted before it is parsed, and a thread parses it, not the event loop.
"""

from typing import Any

import pytest

from tests.support.responses import refusal_of

CALLS = ["/hash", "/blocks", "/annotate?engine=vllm"]
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


@pytest.mark.parametrize(
    "spans",
    [
        [{"start": 0, "end": 2**62, "hash": "0" * 16}],
        [{"start": 3, "end": 1, "hash": "0" * 16}],
        [{"start": 0, "end": 2, "hash": "0" * 16}, {"start": 1, "end": 3, "hash": "1" * 16}],
        [{"start": 0, "end": 1, "hash": "0x" + "0" * 14}],
        [{"start": 0, "end": 1, "hash": "\u0660" * 16}],
    ],
)
def test_spans_that_are_amiss_are_refused(server: Any, spans: list[dict[str, Any]]) -> None:
    body = {"engine": "sglang", "input_ids": [1, 2, 3], "spans": spans}
    answer = server.client.post("/pad", json=body)
    assert refusal_of(answer) in {"invalid-json", "refused-by-engine"}
