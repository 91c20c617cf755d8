"""Deep JSON, a million names or a number of a million digits, to block the event loop.

The service counts bytes and values before parsing, and parses in a thread.
"""

from typing import Any

import pytest

from tests.support.responses import refusal_of

CALLS = ["/hash", "/blocks", "/annotate?engine=vllm"]
JSON = {"content-type": "application/json"}

# tests/unit/mmhash_service/bodies/test_validation.py has other JSON that is none.
INVALID = {
    "depth": b"[" * 100_000 + b"]" * 100_000,
    "depth in a member": b'{"items":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "no end": b'{"items":[{"kind":"bytes","data":"',
    "a number of many digits": b'{"items":' + b"9" * 1_000_000 + b"}",
    "NaN": b'{"items":NaN}',
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", INVALID)
def test_deep_or_crowded_json_is_refused(server: Any, call: str, name: str) -> None:
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
