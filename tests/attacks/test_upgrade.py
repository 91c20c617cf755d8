"""An Upgrade header that makes a server read the body as the next request, for a tenant of its choice.

The server ignores upgrades: it reads each body whole, and refuses CONNECT with 400.
"""

import json
from typing import Any

import pytest

import mmhash
from tests.support.service import read_all

LINE = b"POST /hash HTTP/1.1\r\n"
TYPE = b"Host: test\r\nContent-Type: application/octet-stream\r\n"
HIDDEN = LINE + TYPE + b"X-Mmhash-Tenant: acme\r\nContent-Length: 3\r\n\r\nabc"
KEY = mmhash.key(HIDDEN).hex()
LAST = b"GET /version HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"

UPGRADES = {
    "h2c": b"Upgrade: h2c\r\nConnection: Upgrade\r\n",
    "curl --http2": (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
    ),
    "websocket": (
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    ),
    "an unknown one": b"Upgrade: smtp/9\r\nConnection: upgrade\r\n",
    "several": b"Upgrade: a, h2c\r\nUpgrade: websocket\r\nConnection: upgrade\r\n",
    "capitals": b"UPGRADE: H2C\r\nCONNECTION: UPGRADE\r\n",
    "no value": b"Upgrade:\r\nConnection: upgrade\r\n",
    "after other options": b"Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\n",
    "two Connection headers": b"Connection: keep-alive\r\nConnection: upgrade\r\nUpgrade: x\r\n",
    "no Connection header": b"Upgrade: h2c\r\n",
    "no Upgrade header": b"Connection: upgrade\r\n",
    "with Expect": b"Upgrade: h2c\r\nConnection: upgrade\r\nExpect: 100-continue\r\n",
}
FRAMED = {
    "a length": b"Content-Length: %d\r\n\r\n%b" % (len(HIDDEN), HIDDEN),
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n"
    % (9, HIDDEN[:9], len(HIDDEN) - 9, HIDDEN[9:]),
}


def answers_in(stream: bytes) -> list[tuple[int, bytes]]:
    """The answers of a connection, without those that only say to continue."""
    found: list[tuple[int, bytes]] = []
    while stream:
        head, _, stream = stream.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        status = int(line.split()[1])
        assert status != 101
        if status != 100:
            headers = {
                name.lower(): value for name, _, value in (at.partition(": ") for at in lines)
            }
            length = int(headers["content-length"])
            found.append((status, stream[:length]))
            stream = stream[length:]
    return found


def keys_of(answers: list[tuple[int, bytes]]) -> list[str]:
    return [item["key"] for _, body in answers for item in json.loads(body).get("items", ())]


@pytest.mark.parametrize("framing", FRAMED)
@pytest.mark.parametrize("upgrade", UPGRADES)
def test_the_key_is_of_the_whole_body(server: Any, upgrade: str, framing: str) -> None:
    request = LINE + UPGRADES[upgrade] + TYPE + FRAMED[framing]
    answers = answers_in(server.send_raw(request + LAST))
    statuses = [status for status, _ in answers]
    assert keys_of(answers) == [KEY]
    # After Expect the connection is closed: see test_smuggling.
    assert statuses == ([200] if "Expect" in upgrade else [200, 200])


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_the_request_may_arrive_in_any_pieces(server: Any, version: bytes) -> None:
    upgrade = b"Upgrade: h2c\r\nConnection: close, Upgrade\r\n"
    request = LINE.replace(b"1.1", version) + upgrade + TYPE + FRAMED["a length"]
    for step in (1, 7, len(request) - len(HIDDEN), len(request) - 1):
        with server.connect() as connection:
            for at in range(0, len(request), step):
                connection.sendall(request[at : at + step])
            answer = read_all(connection)
        assert keys_of(answers_in(answer)) == [KEY]


def test_each_request_of_a_pipeline_has_its_own_key(server: Any) -> None:
    bodies = [HIDDEN[:at] for at in range(20)]
    requests = [
        LINE
        + list(UPGRADES.values())[at % 11]
        + TYPE
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body
        for at, body in enumerate(bodies)
    ]
    answers = answers_in(server.send_raw(b"".join(requests) + LAST))
    assert keys_of(answers) == [mmhash.key(body).hex() for body in bodies]
    assert len(answers) == len(bodies) + 1


def test_no_other_protocol_starts_after_the_body(server: Any) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
    request = LINE + UPGRADES["curl --http2"] + TYPE + FRAMED["a length"]
    statuses = [status for status, _ in answers_in(server.send_raw(request + preface))]
    assert 101 not in statuses
    assert statuses.count(400) == 1


def test_headers_of_a_trailer_upgrade_nothing(server: Any) -> None:
    body = FRAMED["chunks"].removesuffix(b"\r\n") + UPGRADES["h2c"] + b"\r\n"
    answers = answers_in(server.send_raw(LINE + TYPE + body + LAST))
    assert keys_of(answers) == [KEY]
    assert [status for status, _ in answers] == [200, 200]


@pytest.mark.parametrize("target", [b"test:80", b"/hash", b"http://test/hash"])
@pytest.mark.parametrize("more", [b"", *UPGRADES.values()])
def test_connect_is_refused_and_nothing_after_it_is_answered(
    server: Any, target: bytes, more: bytes
) -> None:
    request = b"CONNECT " + target + b" HTTP/1.1\r\n" + TYPE + more + FRAMED["a length"]
    assert [status for status, _ in answers_in(server.send_raw(request))] == [400]
