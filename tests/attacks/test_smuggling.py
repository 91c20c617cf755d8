"""One request that two parsers read as two: two lengths, a length and chunks, folded or torn lines.

An ambiguous request gets 400, and its connection is closed, before any handler runs.
"""

from typing import Any

import pytest

HEAD = b"POST /hash HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"
HIDDEN = b"GET /version HTTP/1.1\r\nHost: test\r\n\r\n"

REFUSED = {
    "a length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 38\r\n\r\n",
    "two equal lengths": b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": b"Content-Length: 0, 38\r\n\r\n",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a signed length": b"Content-Length: +0\r\n\r\n",
    "a hexadecimal length": b"Content-Length: 0x0\r\n\r\n",
    "no length": b"Content-Length: \r\n\r\n",
    "a length beyond 64 bits": b"Content-Length: 18446744073709551616\r\n\r\n",
    "chunked, but not last": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "gzip below chunks": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "gzip in a header of its own": (
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "identity": b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "an empty coding": b"Transfer-Encoding: , chunked\r\n\r\n0\r\n\r\n",
    "an empty coding behind": b"Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n",
    "chunks with a parameter": b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "chunks in quotes": b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "a tab behind the coding": b"Transfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n",
    "a letter of another alphabet": (b"Transfer-Encoding: chun\xe2\x84\xaaed\r\n\r\n0\r\n\r\n"),
    "chunks and an upgrade": (
        b"Upgrade: h2c\r\nConnection: upgrade\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    ),
    "a coding like it": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a torn coding": b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a chunk beyond 64 bits": b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
    "a negative chunk": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "a chunk in decimals": b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "a chunk longer than it says": b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "a chunk of a bare line feed": b"Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
    "a blank before the colon": b"Content-Length : 0\r\n\r\n",
    "a length beyond 63 bits": b"Content-Length: 9223372036854775808\r\n\r\n",
    "a length of many zeros": b"Content-Length: 00000000000000000000000000\r\n\r\n",
    "a folded header": b"X: a\r\n Content-Length: 38\r\nContent-Length: 0\r\n\r\n",
    "a header without a name": b": 0\r\nContent-Length: 0\r\n\r\n",
    "a header without a colon": b"Content-Length\r\n\r\n",
    "a bare carriage return": b"X: a\rContent-Length: 38\r\n\r\n",
    "a NUL": b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "a name that is no word": b"Content(Length): 0\r\n\r\n",
}


def statuses(answer: bytes) -> list[bytes]:
    return [line.split()[1] for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


@pytest.mark.parametrize("name", REFUSED)
def test_an_ambiguous_request_is_refused_and_nothing_after_it_is_answered(
    server: Any, name: str
) -> None:
    answer = server.send_raw(HEAD + REFUSED[name] + HIDDEN)
    # A call may have begun before its body turned out to be none: its client has gone.
    assert statuses(answer) == [b"400"], answer
    assert b'"mmhash"' not in answer


@pytest.mark.parametrize(
    "line",
    [
        b"POST /hash HTTP/1.1 GET /live HTTP/1.1\r\n",
        b"POST\t/hash\tHTTP/1.1\r\n",
        b"post /hash HTTP/1.1\r\n",
        b"POST /ha sh HTTP/1.1\r\n",
        b"POST /hash\0 HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_a_malformed_request_line_is_refused(server: Any, line: bytes) -> None:
    answer = server.send_raw(line + b"Host: test\r\nContent-Length: 0\r\n\r\n" + HIDDEN)
    assert statuses(answer) == [b"400"]


def test_a_body_ends_where_its_length_says(server: Any) -> None:
    # The hidden request is content: as long as the length says, it is hashed and not answered.
    length = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(HIDDEN)
    answer = server.send_raw(HEAD + length + HIDDEN)
    assert statuses(answer) == [b"200"]
    assert b'"nbytes":%d' % len(HIDDEN) in answer


def test_bare_line_feeds_do_not_hide_a_header(server: Any) -> None:
    answer = server.send_raw(HEAD.replace(b"\r\n", b"\n") + b"Content-Length: 38\n\n" + HIDDEN)
    assert statuses(answer) == [b"400"]


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/2.0"])
def test_chunks_belong_to_http_1_1(server: Any, version: bytes) -> None:
    head = HEAD.replace(b"HTTP/1.1", version)
    body = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    assert statuses(server.send_raw(head + body + HIDDEN)) == [b"400"]


@pytest.mark.parametrize("value", [b"Chunked", b"CHUNKED", b"  chunked ", b"\tchunked"])
def test_a_chunked_body_is_decoded(server: Any, value: bytes) -> None:
    lines = b"Connection: close\r\nTransfer-Encoding:" + value
    answer = server.send_raw(HEAD + lines + b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    assert statuses(answer) == [b"200"]
    assert b'"nbytes":3' in answer


@pytest.mark.parametrize("version", [b"", b" HTTP/0.9", b" HTTP/2.0", b" HTTP/1.2", b" HTTP/3.0"])
def test_another_version_of_http_is_refused(server: Any, version: bytes) -> None:
    line = b"POST /hash" + version + b"\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"
    answer = server.send_raw(line + b"Content-Length: 3\r\n\r\nabc" + HIDDEN)
    assert statuses(answer) == [b"400"]


@pytest.mark.parametrize(
    "chunk",
    [
        b"3 \r\nabc\r\n",
        b"3\t\r\nabc\r\n",
        b"3;a\nb\r\nabc\r\n",
        b"3;a\rb\r\nabc\r\n",
        b"3;\0\r\nabc\r\n",
        b"+3\r\nabc\r\n",
        b"3\r\nabcXX",
        b"3\r\nabc\n",
        b"\r\n3\r\nabc\r\n",
        b"FFFFFFFFFFFFFFFF0\r\nabc\r\n",
        b"3_0\r\nabc\r\n",
    ],
)
def test_a_torn_chunk_is_refused(server: Any, chunk: bytes) -> None:
    answer = server.send_raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + HIDDEN)
    assert statuses(answer) == [b"400"], answer


@pytest.mark.parametrize(
    "refused", [b"X-Mmhash-Tenant: nobody\r\n", b"Content-Encoding: gzip\r\n", b""]
)
def test_a_request_after_an_early_refusal_is_never_read_as_its_body(
    server: Any, refused: bytes
) -> None:
    # A proxy that gets an answer instead of 100 does not send the body, and would send the next
    # request, perhaps another client's, where the server expects the body.
    head = HEAD + refused + b"Content-Length: 38\r\nExpect: 100-continue\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head)
        answer = connection.recv(65536)
        if answer.startswith(b"HTTP/1.1 100 "):
            connection.sendall(bytes(38))
        connection.sendall(HIDDEN)
        try:
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    assert b"connection: close" in answer
    assert b'"mmhash"' not in answer


def with_trailer(trailer: bytes, length: int) -> bytes:
    chunk = b"%x\r\n%b\r\n" % (length, bytes(length))
    coding = b"Transfer-Encoding: chunked\r\n\r\n"
    return HEAD + coding + chunk + b"0\r\n" + trailer + b"\r\n\r\n" + HIDDEN


@pytest.mark.parametrize("length", [3, 300_000])
@pytest.mark.parametrize(
    "trailer",
    [
        b"Connection: close",
        b"CONNECTION: keep-alive, Close",
        b"Proxy-Connection: close",
        b"Content-Length: 0",
        b"Transfer-Encoding: chunked",
    ],
)
def test_a_trailer_that_ends_the_connection_is_refused(
    server: Any, trailer: bytes, length: int
) -> None:
    # After `Connection: close` the parser dropped all that followed, silently: behind a proxy that
    # forwards trailers, those were the requests of other clients.
    answer = server.send_raw(with_trailer(trailer, length))
    assert statuses(answer) == [b"400"], answer
    assert b"connection: close" in answer


@pytest.mark.parametrize("length", [3, 300_000])
@pytest.mark.parametrize(
    "trailer",
    [b"Connection: upgrade\r\nUpgrade: h2c", b"Keep-Alive: timeout=1", b"TE: x", b"Host: other"],
)
def test_any_other_trailer_is_ignored(server: Any, trailer: bytes, length: int) -> None:
    last = b"GET /version HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    answer = server.send_raw(with_trailer(trailer, length) + last)
    assert answer.count(b"HTTP/1.1 200 ") == answer.count(b"HTTP/1.1 ") == 3, answer
    assert b'"nbytes":%d' % length in answer


@pytest.mark.parametrize(
    "target",
    [
        b"/hash#",
        b"/hash#/version",
        b"/version#/../hash",
        b"/hash?of=bytes#x",
        b"http://test/hash#x",
    ],
)
def test_a_target_has_no_fragment(server: Any, target: bytes) -> None:
    # A proxy may compare its rules with all of it, and the server drops the fragment.
    line = HEAD.replace(b"/hash", target)
    answer = server.send_raw(line + b"Content-Length: 3\r\n\r\nabc" + HIDDEN)
    assert statuses(answer) == [b"400"], answer
