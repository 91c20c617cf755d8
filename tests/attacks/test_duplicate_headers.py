"""A header sent twice: the gateway or the guard reads one value, and the service the other.

A header that takes one value may occur once. A request or a part that repeats it is refused.
"""

import gzip
import json
from typing import Any

import pytest

from tests.support.guarded import through_guard
from tests.support.responses import refusal_of

RAW = (b"Content-Type", b"application/octet-stream")
VALUES = {
    b"Content-Type": [b"application/octet-stream", b"application/json"],
    b"Content-Encoding": [b"identity", b"gzip"],
    b"Content-Length": [b"3", b"0"],
    b"Transfer-Encoding": [b"chunked", b"identity"],
    b"Host": [b"test", b"other"],
    b"Authorization": [b"Bearer a", b"Bearer b"],
    b"X-Mmhash-Tenant": [b"acme", b"umbrella"],
    b"X-Request-Id": [b"one", b"two"],
    b"X-Body-Compressed": [b"identity", b"zstd"],
}
CASES = [
    (name, first, second)
    for name, (one, other) in VALUES.items()
    for first, second in ((one, other), (other, one), (one, one), (one, b""), (b"", one))
]


def request(path: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    names = {name.lower() for name, _ in headers}
    more = [(b"Host", b"test"), RAW, (b"Content-Length", b"3"), (b"Connection", b"close")]
    if b"transfer-encoding" in names:
        del more[2]
    lines = [
        b"%b: %b\r\n" % header
        for header in [*headers, *(at for at in more if at[0].lower() not in names)]
    ]
    return b"POST " + path + b" HTTP/1.1\r\n" + b"".join(lines) + b"\r\n3\r\nabc\r\n0\r\n\r\n"


@pytest.mark.parametrize(("name", "first", "second"), CASES)
def test_a_repeated_header_is_refused(
    server: Any, name: bytes, first: bytes, second: bytes
) -> None:
    # In another case, and with a header between them.
    headers = [(name, first), (b"X-Other", b"1"), (name.upper(), second)]
    answer = server.send_raw(request(b"/hash", headers))
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer


def test_a_header_that_takes_many_values_may_be_repeated(server: Any) -> None:
    for name in (b"Accept", b"X-Forwarded-For", b"Cookie", b"Via", b"X-Any"):
        answer = server.send_raw(request(b"/hash", [(name, b"a"), (name, b"b")]))
        assert answer.startswith(b"HTTP/1.1 200 "), answer


FORGED = "f0" * 32


def through(body: bytes, *headers: tuple[bytes, bytes]) -> tuple[int, bytes]:
    """The status, and the body that the engine behind the guard receives."""
    return through_guard(body, headers, engine="vllm", secrets=["00" * 32], tenant="@header")[:2]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("packed", [True, False])
def test_the_guard_forwards_no_repeated_header(name: bytes, packed: bool) -> None:
    body = json.dumps({"uuid": FORGED}).encode()
    if packed:
        body = gzip.compress(body)
    one, other = VALUES[name]
    for first, second in ((one, other), (other, one), (one, one)):
        headers = [(name.lower(), first), (b"x-other", b"1"), (name.lower(), second)]
        assert through(body, *headers) == (400, b"")


@pytest.mark.parametrize("coding", [b"gzip", b"gzip, chunked", b"chunked, chunked", b"x-chunked"])
def test_the_guard_forwards_no_other_transfer_encoding(coding: bytes) -> None:
    body = gzip.compress(json.dumps({"uuid": FORGED}).encode())
    assert through(body, (b"transfer-encoding", coding)) == (415, b"")


PART = b'Content-Disposition: form-data; name="a"\r\n'


@pytest.mark.parametrize(
    "lines",
    [
        PART * 2,
        PART + b'content-disposition: form-data; name="b"\r\n',
        PART + b"Content-Type: image/png\r\nContent-Type: application/octet-stream\r\n",
        b"Content-Type: image/png\r\n" + PART + b"CONTENT-TYPE: image/png\r\n",
        PART + b"Content-Transfer-Encoding: binary\r\nContent-Transfer-Encoding: 8bit\r\n",
        PART + b"Content-Type:\r\nContent-Type: image/png\r\n",
    ],
)
def test_a_part_that_repeats_a_header_is_refused(server: Any, lines: bytes) -> None:
    body = b"--xyz\r\n" + lines + b"\r\nabc\r\n--xyz--\r\n"
    answer = server.hash(body, "multipart/form-data; boundary=xyz")
    assert refusal_of(answer) == "duplicate-header"
