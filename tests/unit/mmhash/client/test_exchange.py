"""The requests that are retried, those that are not, and the errors of refusals."""

import json
import socket
import time
from typing import Any

import pytest

import mmhash
from tests.support.listening import serve_connections, stop_listening
from tests.support.scripted import ScriptedServer

pytestmark = pytest.mark.slow

BUSY = {
    "type": "urn:mmhash:problem:busy",
    "title": "Busy",
    "status": 429,
    "detail": "The server holds as much as it may.",
}
PROBLEM = {"Content-Type": "application/problem+json"}
CONTENT = bytes(range(250)) * 2400  # three pieces

Answer = tuple[int, dict[str, str], bytes]


def good(content: bytes = CONTENT, **more: str) -> Answer:
    item: dict[str, Any] = {
        "name": None,
        "kind": "bytes",
        "dtype": "",
        "shape": [],
        "nbytes": len(content),
        "algorithm": "blake3",
        "digest": mmhash.digest(content).hex(),
        "key": mmhash.key(content).hex(),
        **more,
    }
    return 200, {"Content-Type": "application/json"}, json.dumps({"items": [item]}).encode()


def busy(retry_after: str) -> Answer:
    return 429, PROBLEM | {"Retry-After": retry_after}, json.dumps(BUSY).encode()


def test_an_item_has_its_tag_and_says_whether_the_memo_had_it(connect: Any) -> None:
    with ScriptedServer(good(memo="hit", tag="t")) as server, connect(server.url) as client:
        (item,) = client.hash(CONTENT, engines="vllm", sign=True)
    assert (item.memo, item.tag) == ("hit", "t")
    assert server.paths == ["/hash?algorithm=blake3&engines=vllm&sign=1"]


def test_a_busy_service_is_retried_after_its_retry_after(connect: Any) -> None:
    with ScriptedServer(busy("1"), busy("0"), good()) as server, connect(server.url) as client:
        start = time.monotonic()
        (item,) = client.hash(CONTENT)
        assert time.monotonic() - start >= 1
    assert item.key == mmhash.key(CONTENT)
    assert server.bodies == [CONTENT] * 3


@pytest.mark.parametrize("retry_after", ["", "soon", "-1", "²", "Sat, 28 Nov 2026 05:00:00 GMT"])
def test_a_useless_retry_after_is_replaced_by_a_short_wait(connect: Any, retry_after: str) -> None:
    with ScriptedServer(busy(retry_after), good()) as server, connect(server.url) as client:
        assert client.hash(CONTENT)[0].key == mmhash.key(CONTENT)
    assert len(server.bodies) == 2


def test_a_lost_connection_is_made_again(connect: Any) -> None:
    with ScriptedServer(None, good()) as server, connect(server.url) as client:
        assert client.hash(CONTENT)[0].key == mmhash.key(CONTENT)
    assert server.bodies == [CONTENT] * 2


def test_the_number_of_retries_is_bounded(connect: Any) -> None:
    with (
        ScriptedServer(busy("0")) as server,
        connect(server.url, retries=2) as client,
        pytest.raises(mmhash.ServiceError, match="holds as much") as caught,
    ):
        client.hash(CONTENT)
    assert len(server.bodies) == 3
    error = caught.value
    assert (error.status, error.type, error.retry_after) == (429, BUSY["type"], 0.0)
    assert error.detail == BUSY["detail"]


def test_no_call_waits_longer_than_its_timeout(connect: Any) -> None:
    with (
        ScriptedServer(busy("3600"), good()) as server,
        connect(server.url, timeout_s=60) as client,
        pytest.raises(mmhash.ServiceError) as caught,
    ):
        client.hash(CONTENT)
    assert len(server.bodies) == 1
    assert caught.value.retry_after == 3600


@pytest.mark.parametrize("page", [b"<html>", b'{"detail": "refus\xe9"}'])
@pytest.mark.parametrize("status", [301, 400, 413, 422, 500])
def test_a_permanent_refusal_is_not_retried(connect: Any, status: int, page: bytes) -> None:
    with (
        ScriptedServer((status, {}, page), good()) as server,
        connect(server.url) as client,
        pytest.raises(mmhash.ServiceError, match=str(status)) as caught,
    ):
        client.hash(CONTENT)
    assert len(server.bodies) == 1
    assert (caught.value.status, caught.value.type) == (status, "about:blank")


@pytest.mark.parametrize(
    ("errors", "places"),
    [
        ([], ()),
        ([{"parameter": "of", "reason": "is unknown"}], ("of: is unknown",)),
        (
            [{"pointer": "/items/0", "reason": "is missing"}, {"pointer": "", "reason": "is odd"}],
            ("/items/0: is missing", "is odd"),
        ),
    ],
)
def test_the_error_has_the_places_of_a_problem(
    connect: Any, errors: Any, places: tuple[str, ...]
) -> None:
    problem = {"type": "urn:mmhash:problem:invalid-query", "detail": "Wrong.", "errors": errors}
    with (
        ScriptedServer((422, PROBLEM, json.dumps(problem).encode())) as server,
        connect(server.url) as client,
        pytest.raises(mmhash.ServiceError) as caught,
    ):
        client.hash(CONTENT)
    assert (caught.value.detail, caught.value.errors) == ("Wrong.", places)
    assert str(caught.value) == (f"Wrong. ({'; '.join(places)})" if places else "Wrong.")


@pytest.mark.parametrize(
    "content",
    [b"<html>Welcome", b'{"items": [{"kind": "bytes"}]}', b'{"items": [{"name": "\xe9"}]}'],
)
def test_a_successful_answer_of_another_kind_of_server_is_an_error(
    connect: Any, content: bytes
) -> None:
    with (
        ScriptedServer((200, {}, content)) as server,
        connect(server.url) as client,
        pytest.raises(mmhash.ServiceError, match="not JSON"),
    ):
        client.hash(CONTENT)


def test_an_answer_that_comes_slowly_ends_with_the_timeout(connect: Any) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b" ")
            time.sleep(0.05)

    listener = socket.create_server(("127.0.0.1", 0))
    serve_connections(listener, drip)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with (
        connect(url, timeout_s=0.3) as client,
        pytest.raises(mmhash.ServiceError, match=r"longer than 0\.3 s"),
    ):
        client.hash(CONTENT)
    stop_listening(listener)


def test_an_error_without_a_response_has_no_status(connect: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with (
            connect(url, retries=1) as client,
            pytest.raises(mmhash.ServiceError, match="no response: ") as caught,
        ):
            client.hash(CONTENT)
    assert (caught.value.status, caught.value.retry_after) == (None, None)
