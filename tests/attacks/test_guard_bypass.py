"""A caller's hash that the guard does not see and the engine does (CVE-2026-111392, CVE-2026-105754).

The engine gets what the guard has read, written anew, and what could be read in two ways is refused.
"""

import json
import time

import pytest

import mmhash
from tests.support.guarded import through_guard

SECRET = bytes(32)
FORGED = "f0" * 32
NAMES = ["uuid", "content_hash", "mm_hashes", "mm_content_hashes", "multi_modal_uuids"]


def through(body: bytes, *headers: tuple[bytes, bytes], engine: str = "vllm") -> tuple[int, bytes]:
    """The status, and the body that the engine behind the guard receives."""
    return through_guard(body, headers, engine=engine, secrets=[SECRET.hex()])[:2]


HIDDEN = {
    "plain": '{"NAME":"HASH"}',
    "nested": '{"a":[[{"b":{"NAME":"HASH"}}]]}',
    "twice": '{"NAME":"HASH","a":2,"NAME":"HASH"}',
    "blanks": '\t{ "NAME"\n:\r "HASH" }',
    "a list": '[{"NAME":["HASH"]}]',
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", HIDDEN)
@pytest.mark.parametrize("escaped", [False, True])
def test_no_hash_goes_through(name: str, case: str, escaped: bool) -> None:
    printable = "".join(f"\\u{ord(letter):04x}" for letter in name) if escaped else name
    filled = HIDDEN[case].replace("NAME", printable).replace("HASH", FORGED)
    status, body = through(filled.encode())
    assert status == 200
    found = json.dumps(json.loads(body))
    assert FORGED not in found
    assert f'"{name}"' not in found


@pytest.mark.parametrize(
    "body",
    [
        b'{"uuid":"x"',
        b'{"uuid":"x"}{}',
        b'{"uuid":NaN,}',
        b'{"uuid":"\xff"}',
        b'{"uuid":"\\ud800"}',
        b"[" * 10_000 + b'{"uuid":"x"}' + b"]" * 10_000,
        '{"uuid":"x"}'.encode("utf-16"),
        '{"uuid":"x"}'.encode("utf-32-le"),
        b'{"uuid":"x",/**/"a":1}',
        b"{'uuid':'x'}" + b'"uuid"',
    ],
)
def test_what_two_parsers_may_read_in_two_ways_is_refused(body: bytes) -> None:
    assert through(body) == (422, b"")


def test_a_compressed_body_is_refused() -> None:
    for coding in (b"gzip", b"deflate", b"br", b"identity, gzip"):
        assert through(b'{"uuid":"x"}', (b"content-encoding", coding)) == (415, b"")


def test_too_many_tags_or_values_are_refused() -> None:
    tags = json.dumps({"uuid": "x", "mmhash_tags": ["a"] * 1001}).encode()
    values = b'{"uuid":"x","a":[' + b"0," * 200_000 + b"0]}"
    for body in (tags, values):
        assert through(body) == (413, b"")


def test_a_good_tag_opens_its_own_key_alone() -> None:
    key = mmhash.key(b"a picture")
    expires = int(time.time()) + 60
    tag = mmhash.sign_tag(key, engine="vllm", tenant=None, expires=expires, secrets=[SECRET])
    request = {"a": {"uuid": key.hex()}, "b": {"uuid": FORGED}, "mmhash_tags": [tag]}
    status, body = through(json.dumps(request).encode())
    assert (status, json.loads(body)) == (200, {"a": {"uuid": key.hex()}, "b": {}})
    for other in ("sglang", "trtllm"):
        _, body = through(json.dumps(request).encode(), engine=other)
        assert json.loads(body)["a"] == {}
