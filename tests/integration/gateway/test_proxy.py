"""The gateway forwards methods, paths, headers, bodies and streams as they were sent."""

import json
import socket
from typing import Any

import httpx
import pytest

from tests.support.engine_worker import STREAM
from tests.support.gateway import EngineProcess
from tests.support.service import Service, count
from tests.support.waiting import wait_until

LONG = b'{"prompt": "' + b"x" * (1 << 24) + b'"}'

HALF_BODY = b"POST /x HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\nhalf"

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def test_a_stream_passes_byte_for_byte(client: httpx.Client) -> None:
    with client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as answer:
        assert b"".join(answer.iter_raw()) == b"".join(STREAM)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "content-length" not in answer.headers


def test_the_first_bytes_of_a_stream_do_not_wait_for_the_others(client: httpx.Client) -> None:
    body = CHAT | {"stream": True, "mode": "hang-in-stream"}
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert next(answer.iter_raw()).startswith(STREAM[0])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("POST", "/tokenize"),
        ("POST", "/v1/embeddings"),
        ("GET", "/version"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("DELETE", "/v1/files/a%2Fb"),
        ("PUT", "/unknown/%C3%A4//path"),
        ("GET", "/"),
    ],
)
def test_every_path_passes_that_is_not_the_gateways(
    client: httpx.Client, method: str, path: str
) -> None:
    seen = client.request(method, f"{path}?a=1&b=%20&a=2").json()
    assert (seen["method"], seen["path"], seen["query"]) == (method, path, "a=1&b=%20&a=2")


def test_a_browser_is_shown_the_page_of_the_fleet(client: httpx.Client) -> None:
    page = client.get("/", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (307, "fleet")


def test_a_body_without_hashes_passes_unchanged(client: httpx.Client) -> None:
    body = b'{ "messages":[ {"role":"user","content":"\\u00e4 1.0"} ], "seed":1.50, "x":-0 }'
    for path in ("/v1/chat/completions", "/v1/embeddings"):
        seen = client.post(path, content=body, headers={"content-type": "application/json"}).json()
        assert seen["body"].encode("latin-1") == body


def test_a_workers_refusal_passes(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json=CHAT | {"status": 418})
    assert answer.status_code == 418
    assert answer.json()["worker"]


def test_headers_of_one_hop_do_not_pass(client: httpx.Client) -> None:
    answer = client.post(
        "/v1/chat/completions",
        json=CHAT,
        headers={
            "connection": "x-mine",
            "x-mine": "1",
            "te": "trailers",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "x-request-id": "a-request.1",
            "authorization": "Bearer of-the-worker",
        },
    )
    assert answer.headers["x-request-id"] == "a-request.1"
    assert "x-of-one-hop" not in answer.headers
    seen = [tuple(header) for header in answer.json()["headers"]]
    names = [name for name, _ in seen]
    assert "x-mine" not in names
    assert "te" not in names
    assert ("x-request-id", "a-request.1") in seen
    assert ("authorization", "Bearer of-the-worker") in seen
    assert names.count("host") == names.count("x-request-id") == names.count("content-length") == 1
    assert any(name == "traceparent" and "0af765" in value for name, value in seen)


def test_media_is_keyed_by_its_content(client: httpx.Client) -> None:
    def uuids(*urls: str) -> list[str | None]:
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        chat = {"messages": [{"role": "user", "content": parts}]}
        sent = json.loads(client.post("/v1/chat/completions", json=chat).json()["body"])
        return [part.get("uuid") for part in sent["messages"][0]["content"]]

    first, again, other = uuids(
        "data:;base64,YWJj", "data:image/png;base64,YWJj", "data:;base64,eHl6"
    )
    assert first == again != other
    assert uuids("https://e.example/1.png") == [None]  # without url_hosts, nothing is fetched


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"messages": 1}',
        b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}',
        b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:;base64,#"}]}]}',
        b'{"prompt": ["a", "b"]}',
        b'{"input_ids": [[1, 2], [3]]}',
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
def test_a_request_without_a_plan_is_the_workers_to_answer(
    client: httpx.Client, path: str, body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post(path, content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["body"].encode("latin-1") == body


def test_an_unknown_tenant_is_refused(client: httpx.Client) -> None:
    assert client.get("/v1/models", headers={"x-mmhash-tenant": "other"}).status_code == 403
    assert client.get("/v1/models", headers={"x-mmhash-tenant": "acme"}).status_code == 200


def test_a_disconnect_reaches_the_worker(gateway: Service, fleet: list[EngineProcess]) -> None:
    def aborted() -> int:
        return sum(one.state()["aborted"] for one in fleet)

    def hanging() -> int:
        return sum(one.state()["seen"].count("hang") for one in fleet)

    with gateway.new_client() as client:
        wait_until_idle(client)
        wait_until(lambda: aborted() == hanging())  # other tests' requests
        before = aborted(), hanging(), count(client, "mmhash_gateway_disconnects_total")
    for body in ({"mode": "hang"}, {"mode": "hang-in-stream", "stream": True}):
        text = json.dumps(body).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n"
        with gateway.connect() as connection:
            connection.sendall(head % len(text) + text)
            if "stream" in body:
                assert connection.recv(1000)
            else:
                wait_until(lambda: hanging() > before[1])
    wait_until(lambda: aborted() == before[0] + 2)
    with gateway.new_client() as client:
        wait_until(lambda: count(client, "mmhash_gateway_disconnects_total") == before[2] + 2)
        wait_until_idle(client)


@pytest.mark.parametrize(
    ("path", "types"),
    [
        ("/v1/responses", ["Application/JSON"]),
        ("/v1/responses", ["APPLICATION/JSON; Charset=UTF-8"]),
        ("/v1/responses", ["application/vnd.x+Json"]),
        ("/v1/responses", []),  # engines read a body without a type as JSON
        ("/generate", ["text/plain"]),  # the plan reads it as JSON
    ],
)
def test_a_body_that_engines_read_as_json_has_the_limit_of_json(
    client: httpx.Client, path: str, types: list[str]
) -> None:
    answer = client.post(path, content=LONG, headers=[("content-type", one) for one in types])
    assert (answer.status_code, answer.json()["title"]) == (413, "Body too large")


def test_a_long_body_that_is_not_json_passes(client: httpx.Client) -> None:
    headers = {"content-type": "application/octet-stream"}
    assert client.put("/v1/files", content=LONG, headers=headers).status_code == 200


def test_a_body_for_which_there_is_never_room_is_not_to_be_sent_again(client: httpx.Client) -> None:
    headers = {"content-type": "application/octet-stream"}
    answer = client.put("/v1/files", content=bytes(90 << 20), headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (413, "Body too large")


@pytest.mark.parametrize("length", [10, 1_000_000])
def test_a_client_that_ends_only_its_own_side_gets_the_response(
    gateway: Service, length: int
) -> None:
    text = json.dumps({"prompt": "x" * length, "seconds": 1.5}).encode()
    with gateway.connect() as connection, connection.makefile("rb") as answer:
        head = b"POST /v1/responses HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(text) + text)
        connection.shutdown(socket.SHUT_WR)
        received = answer.read()
    while received.startswith(
        b"HTTP/1.1 100 "
    ):  # the gateway sends these to notice a client that has gone
        received = received.partition(b"\r\n\r\n")[2]
    assert received.startswith(b"HTTP/1.1 200 ")
    assert len(received) > length


@pytest.mark.parametrize("sent", [b"POST /x HTTP/1.1\r\nHost: g\r\n", HALF_BODY])
def test_half_a_request_has_no_response(gateway: Service, sent: bytes) -> None:
    with gateway.connect() as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1000) == b""


def test_a_client_of_http_1_0_gets_no_chunks(gateway: Service) -> None:
    """HTTP/1.0 has no chunks: the client would read their lengths as content."""

    def ask(request: bytes) -> tuple[bytes, bytes]:
        with gateway.connect() as connection:
            connection.sendall(request)
            received = b""
            while piece := connection.recv(65536):  # until the connection ends
                received += piece
        head, _, body = received.partition(b"\r\n\r\n")
        return head.lower(), body

    text = b'{"stream": true}'
    head = b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(text)
    head, body = ask(head + text)
    assert b"transfer-encoding" not in head
    assert body == b"".join(STREAM)
    head, body = ask(b"GET /live HTTP/1.0\r\n\r\n")
    assert (body, b"content-length: 15" in head) == (b'{"status":"ok"}', True)
    head, body = ask(b"HEAD /v1/models HTTP/1.0\r\n\r\n")
    assert (head.startswith(b"http/1.1 200 "), body) == (True, b"")


def states(client: httpx.Client) -> list[dict[str, Any]]:
    return client.get("/workers").json()["workers"]


def wait_until_idle(client: httpx.Client) -> None:
    """Wait until the workers have no requests: the gateway notices a client that has gone."""
    wait_until(lambda: not any(one["requests"] for one in states(client)))
