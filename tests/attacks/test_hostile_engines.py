"""An engine behind the gateway whose responses are none, or are other responses for the client.

Only a response of HTTP/1.1 that has one meaning passes; the client gets a problem for any other.
"""

import socket
from collections.abc import Iterator

import pytest

from tests.support.gateway import gateway_before
from tests.support.listening import serve_connections, stop_listening
from tests.support.service import Service

pytestmark = pytest.mark.slow

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"

RESPONSES = {
    "another protocol": b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx",
    "interim for ever": b"HTTP/1.1 103 X\r\nlink: x\r\n\r\n" * 9000,
    "no head": b"{}",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}x",
    "a length and chunks": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n"
    ),
    "compressed and chunked": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "a negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}",
    "a length beyond numbers": b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n{}",
    "a folded header": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: a\r\n b\r\n\r\n{}",
    "a bare CR": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: a\rset-cookie: b\r\n\r\n{}",
    "bare line feeds": b"HTTP/1.1 200 OK\ncontent-length: 2\n\n{}",
    "a zero byte": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: a\0b\r\n\r\n{}",
    "a space in a name": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx y: 1\r\n\r\n{}",
}


class Engine:
    """An engine that sends one response to all requests but probes."""

    def __init__(self) -> None:
        self.response = OK
        self.heads: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        serve_connections(self._listener, self._serve)

    def close(self) -> None:
        """Accept no more connections."""
        stop_listening(self._listener)

    def _serve(self, connection: socket.socket) -> None:
        head = b""
        while piece := connection.recv(65536):
            head += piece
            if not head.endswith(b"\r\n\r\n"):
                continue
            is_probe = head.startswith((b"GET /health", b"GET /metrics"))
            if not is_probe:
                self.heads.append(head)
            connection.sendall(OK if is_probe else self.response)
            head = b""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    started = Engine()
    yield started
    started.close()


@pytest.fixture(scope="module")
def gateway(engine: Engine) -> Iterator[Service]:
    settings = {"tenants": {"acme": "11" * 32}}
    with gateway_before([engine.url], settings=settings) as service:
        yield service


def send(gateway: Service, *headers: bytes) -> bytes:
    """Send a request, and return what comes back."""
    lines = [b"GET /v1/models HTTP/1.1", b"Host: g", *headers, b"", b""]
    return gateway.send_raw(b"\r\n".join(lines))


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_that_is_none_is_a_problem(gateway: Service, engine: Engine, name: str) -> None:
    engine.response = RESPONSES[name]
    answer = send(gateway, b"Connection: close")
    assert answer.startswith(b"HTTP/1.1 502 "), answer
    assert b"urn:mmhash:problem:worker-failed" in answer
    engine.response = OK
    assert send(gateway, b"Connection: close").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("header", [b"X-Mmhash-Tenant: acme", b"Authorization: Bearer key"])
def test_a_client_has_the_gateway_drop_no_header_that_names_it(
    gateway: Service, engine: Engine, header: bytes
) -> None:
    """A worker with a guard would take a request without them for one of its default tenant."""
    name, _, value = header.partition(b": ")
    answer = send(gateway, header, b"Connection: close, " + name)
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert name.lower() + b": " + value in engine.heads[-1]


@pytest.mark.parametrize(
    "trailer", [b"connection: close", b"proxy-connection: close", b"connection: x, close"]
)
def test_a_trailer_that_ends_the_connection_ends_no_other_request(
    gateway: Service, engine: Engine, trailer: bytes
) -> None:
    """The parser takes what follows on that connection for garbage, after the worker has run it."""
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    engine.response = head + b"2\r\n{}\r\n0\r\n" + trailer + b"\r\n\r\n"
    for _ in range(3):
        assert send(gateway, b"Connection: close").startswith(b"HTTP/1.1 200 ")
    engine.response = OK
