"""A request that names its own upstream, to use the gateway as a way into the network behind it.

Only workers of the settings are upstreams. A request's target, host and headers are just forwarded.
"""

import json
from contextlib import suppress

import pytest

from tests.support.gateway import EngineProcess
from tests.support.origin import Origin
from tests.support.service import Service, read_all
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    "head",
    [
        b"GET http://%b/a HTTP/1.1\r\nHost: %b",
        b"GET /a HTTP/1.1\r\nHost: %b\r\nX-Other: %b",
        b"GET //%b/a HTTP/1.1\r\nHost: %b",
        b"GET /@%b/a HTTP/1.1\r\nHost: g\r\nX-Forwarded-Host: %b",
        b"GET /a HTTP/1.1\r\nHost: g\r\nX-Override-Bootstrap-Host: %b\r\nX-Original-URL: http://%b/",
    ],
)
def test_a_request_reaches_a_worker_and_nothing_else(
    gateway: Service, worker: EngineProcess, head: bytes
) -> None:
    origin = Origin()
    try:
        name = f"127.0.0.1:{origin.port}".encode()
        answer = gateway.send_raw(head % (name, name) + b"\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        seen = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert dict(seen["headers"])["host"] == worker.url.removeprefix("http://")
        assert "x-override-bootstrap-host" not in dict(seen["headers"])
        assert not origin.connections
    finally:
        origin.close()


@pytest.mark.parametrize(
    "target",
    [b"/../a", b"/v1/../../a", b"/%2e%2e/a", b"/v1/.%2E", b"/..", b"*", b"http://g/../a"],
)
def test_no_target_leads_out_of_the_path_of_a_worker(
    gateway: Service, worker: EngineProcess, target: bytes
) -> None:
    before = worker.state()["seen"]
    # Behind a worker's URL with a path, `*` would be appended to that path.
    for method in (b"GET", b"POST", b"OPTIONS"):
        head = b"%b %b HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n" % (method, target)
        answer = gateway.send_raw(head)
        assert answer.startswith(b"HTTP/1.1 404 "), answer
    assert worker.state()["seen"] == before


def test_a_refusal_is_not_written_into_another_response(
    gateway: Service, worker: EngineProcess
) -> None:
    before = worker.state()["aborted"]
    body = b'{"stream": true, "mode": "hang-in-stream"}'
    head = b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
    with gateway.connect() as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = b""
        while b"a comment" not in answer:
            answer += connection.recv(65536)
        connection.sendall(b"no request\r\n\r\n")
        with suppress(ConnectionResetError):
            answer += read_all(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b" 400 " not in answer
    assert not answer.endswith(b"0\r\n\r\n")
    # Until then, the worker may note the request while another test looks at what it has seen.
    wait_until(lambda: worker.state()["aborted"] > before)
