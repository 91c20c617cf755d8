"""A header of 200 MB, a path without an end, a million headers, or trailers without an end.

A head or trailer may have 64 KiB, and a head 128 headers. Longer ones get 400.
"""

from typing import Any

import pytest

from tests.support.victim import flood

MIB = 1 << 20
PIECE = b"a" * (64 << 10)


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /live HTTP/1.1\r\nX: ", PIECE),
        (b"GET /live HTTP/1.1\r\n", PIECE),
        (b"GET /", PIECE),
        (b"GET /live?", PIECE),
        (b"", b"\r\n" * 32_000),
        (b"G" * 100, PIECE),
        (b"GET /live HTTP/1.1\r\n", b"a: b\r\n" * 10_000),
        (
            b"POST /hash HTTP/1.1\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
            PIECE,
        ),
        (
            b"POST /hash HTTP/1.1\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            b"a: b\r\n" * 10_000,
        ),
        (
            b"POST /hash HTTP/1.1\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n1;",
            PIECE,
        ),
    ],
    ids=[
        "header",
        "header's name",
        "path",
        "query",
        "line breaks",
        "method",
        "headers",
        "trailer",
        "trailers",
        "chunk's extension",
    ],
)
def test_an_endless_head_is_cut_off(server: Any, begin: bytes, piece: bytes) -> None:
    before = server.memory()
    with server.connect() as connection:
        connection.sendall(begin)
        flood(connection, piece, count=200 * MIB // len(piece))
    assert server.memory() - before < 32 * MIB


@pytest.mark.parametrize("count", [129, 10_000])
def test_too_many_headers_in_one_piece_are_refused(server: Any, count: int) -> None:
    head = b"GET /version HTTP/1.1\r\n" + b"a: b\r\n" * count + b"\r\n"
    answer = server.send_raw(head)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"mmhash"' not in answer


def test_a_header_in_a_trailer_is_ignored(server: Any) -> None:
    answer = server.send_raw(
        b"POST /hash HTTP/1.1\r\nConnection: close\r\nContent-Type: application/octet-stream\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Mmhash-Tenant: acme\r\n\r\n"
    )
    plain = server.hash(b"abc").json()["items"][0]
    assert plain["key"].encode() in answer
