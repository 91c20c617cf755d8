"""A Transfer-Encoding that a gateway undoes and the service does not, or that only one of them reads.

Only `chunked`, once and in HTTP/1.1, is taken; anything else is 400, and the connection is closed.
"""

from typing import Any

import pytest

import mmhash

HEAD = b"Host: test\r\nContent-Type: application/octet-stream\r\n"
BODY = b"\r\n3\r\nabc\r\n0\r\n\r\n"
HIDDEN = b"GET /version HTTP/1.1\r\nHost: test\r\n\r\n"

REFUSED = {
    "gzip": [b"gzip"],
    "gzip below chunks": [b"gzip, chunked"],
    "deflate below chunks": [b"deflate,chunked"],
    "br below chunks, capitals": [b"BR, Chunked"],
    "an empty coding": [b", chunked"],
    "an empty coding behind": [b"chunked,"],
    "chunks in chunks": [b"chunked, chunked"],
    "chunks in chunks, two headers": [b"chunked", b"chunked"],
    "gzip in a header of its own": [b"gzip", b"chunked"],
    "gzip behind": [b"chunked", b"gzip"],
    "identity": [b"identity"],
    "identity below chunks": [b"identity, chunked"],
    "identity in a header of its own": [b"identity", b"chunked"],
    "an unknown one": [b"x-chunked"],
    "one that ends alike": [b"not chunked"],
    "with a parameter": [b"chunked;q=1"],
    "in quotes": [b'"chunked"'],
    "a vertical tab": [b"\x0bchunked"],
    "a tab behind": [b"chunked\t"],
    "a letter of another alphabet": ["\u212a".encode()],
    "nothing": [b""],
}


def statuses(answer: bytes) -> list[bytes]:
    return [line.split()[1] for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


@pytest.mark.parametrize("upgrade", [b"", b"Upgrade: h2c\r\nConnection: upgrade\r\n"])
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_and_nothing_behind_it_is_answered(
    server: Any, name: str, upgrade: bytes
) -> None:
    lines = b"".join(b"Transfer-Encoding: " + value + b"\r\n" for value in REFUSED[name])
    request = b"POST /hash HTTP/1.1\r\n" + HEAD + upgrade + lines + BODY
    answer = server.send_raw(request + HIDDEN)
    assert statuses(answer) == [b"400"], answer
    assert b'"mmhash"' not in answer


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"RTSP/1.0", b""])
def test_chunks_belong_to_http_1_1(server: Any, version: bytes) -> None:
    line = b"POST /hash" + b" " * bool(version) + version + b"\r\n"
    answer = server.send_raw(line + HEAD + b"Transfer-Encoding: chunked\r\n" + BODY + HIDDEN)
    assert statuses(answer) == [b"400"], answer


@pytest.mark.parametrize("value", [b"chunked", b"Chunked", b"CHUNKED", b"  chunked ", b"\tchunked"])
def test_chunks_are_undone(server: Any, value: bytes) -> None:
    lines = b"Connection: close\r\nTransfer-Encoding:" + value + b"\r\n"
    answer = server.send_raw(b"POST /hash HTTP/1.1\r\n" + HEAD + lines + BODY)
    assert statuses(answer) == [b"200"]
    assert mmhash.key(b"abc").hex().encode() in answer
