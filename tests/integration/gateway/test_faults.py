"""Workers that crash, hang, start late or misbehave. No request is lost that another worker can answer."""

import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

import mmhash
from mmhash.engines import vllm
from mmhash_service.gateway.router import UNPLANNED_TOKENS
from tests.support.engine_worker import STREAM
from tests.support.gateway import EngineProcess, engines, gateway_before, healthy, replace
from tests.support.listening import serve_connections, stop_listening
from tests.support.service import Service, count
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PATH = "/v1/chat/completions"


@contextmanager
def fleet_of(
    number: int, **settings: Any
) -> Iterator[tuple[list[EngineProcess], Service, httpx.Client]]:
    with ExitStack() as stack:
        started = stack.enter_context(engines(number))
        urls = [one.url for one in started]
        gateway = stack.enter_context(gateway_before(urls, settings=settings))
        client = stack.enter_context(gateway.new_client())
        wait_until(lambda: all(healthy(client)))
        yield started, gateway, client


def test_a_worker_is_killed_and_restarted() -> None:
    with fleet_of(2) as (started, _, client):
        started[0].kill()
        # Its idle connections are closed, but the gateway still calls it healthy.
        names = {client.post(PATH, json=CHAT).json()["worker"] for _ in range(10)}
        assert names == {"w1"}
        wait_until(lambda: healthy(client) == [False, True])
        started[0].start()
        wait_until(lambda: healthy(client) == [True, True])
        names = {client.post(PATH, json=CHAT).json()["worker"] for _ in range(10)}
        assert names == {"w0", "w1"}


def test_a_worker_that_ends_before_its_response_is_replaced_once() -> None:
    with fleet_of(3) as (started, _, client):
        answer = client.post(PATH, json=CHAT | {"mode": "die"})
        assert answer.status_code == 502
        assert answer.headers["retry-after"]
        alive = lambda: [one for one in started if one.process and one.process.poll() is None]  # noqa: E731
        wait_until(lambda: len(alive()) <= 1)
        assert len(alive()) == 1  # a request that crashes workers must not reach all of them
        assert client.post(PATH, json=CHAT).json()["worker"] == alive()[0].name


def test_a_prompt_is_load_until_its_first_token() -> None:
    """vLLM sends the head of a stream at once, while the prompt is still in its queue."""
    with fleet_of(1) as ((engine,), _, client), ThreadPoolExecutor(1) as pool:
        chat = CHAT | {"stream": True, "mode": "hang-before-token"}
        answer = pool.submit(client.post, PATH, json=chat)
        wait_until(lambda: engine.state()["seen"])
        (worker,) = client.get("/workers").json()["workers"]
        assert worker["load"] > UNPLANNED_TOKENS
        engine.kill()
        assert answer.result().status_code == 502


def test_a_worker_that_ends_before_the_first_token_is_replaced() -> None:
    with fleet_of(2) as (_, _, client):
        answer = client.post(PATH, json=CHAT | {"stream": True, "mode": "die-before-token"})
        assert answer.status_code == 502  # both workers have crashed
        assert count(client, "mmhash_gateway_retries_total") == 1


def test_a_response_that_breaks_is_not_completed() -> None:
    with fleet_of(2) as (_, gateway, client):
        body = CHAT | {"stream": True, "mode": "die-in-stream"}
        received = b""
        with client.stream("POST", PATH, json=body) as answer:
            pieces = answer.iter_raw()
            while len(received) < len(b"".join(STREAM[:2])):
                received += next(pieces)
            with pytest.raises(httpx.RemoteProtocolError):
                next(pieces)
        assert received == b"".join(STREAM[:2])  # the gateway forwards what came, and nothing twice
        assert client.post(PATH, json=CHAT).status_code == 200
        assert count(client, "mmhash_gateway_broken_responses_total") == 1
        assert gateway.process.poll() is None


def test_all_workers_are_down() -> None:
    with fleet_of(2) as (started, _, client):
        for one in started:
            one.kill()
        # Before that, a request whose connection breaks gets a 502, as it may have crashed the worker.
        wait_until(lambda: client.get("/ready").status_code == 503)
        answer = client.post(PATH, json=CHAT)
        assert (answer.status_code, answer.json()["title"]) == (503, "No workers")
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/live").status_code == 200
        started[1].start()
        # The gateway finds the worker even before its next probe.
        assert client.post(PATH, json=CHAT).json()["worker"] == "w1"
        wait_until(lambda: client.get("/ready").status_code == 200)


def test_a_worker_that_hangs_gives_its_requests_to_another() -> None:
    settings = {"gateway.health_timeout_s": "3"}
    with fleet_of(2, **settings) as (started, _, client):
        answers: list[httpx.Response] = []
        started[0].send_signal(signal.SIGSTOP)

        def ask() -> None:
            answers.append(client.post(PATH, json=CHAT))

        threads = [Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.json()["worker"] for one in answers] == ["w1"] * 4
        started[0].send_signal(signal.SIGCONT)
        wait_until(lambda: healthy(client) == [True, True])


def test_a_response_without_a_length_ends_with_its_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:

        def serve(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(
                b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
                b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it"
            )

        serve_connections(listener, serve)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        gateway = stack.enter_context(gateway_before([url]))
        with gateway.new_client() as client:
            answer = client.get("/v1/models")
            assert (answer.text, answer.headers.get("link")) == ("all of it", None)
        stop_listening(listener)


@pytest.mark.parametrize(
    ("status", "length"),
    [(b"304 Not Modified", b"Content-Length: 100\r\n"), (b"204 No Content", b"")],
)
def test_a_response_without_a_body_leaves_the_connection_open(status: bytes, length: bytes) -> None:
    """A 304 has the length of the content that the client already has."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:

        def serve(connection: socket.socket) -> None:
            while connection.recv(65536):
                connection.sendall(b"HTTP/1.1 " + status + b'\r\nETag: "x"\r\n' + length + b"\r\n")

        serve_connections(listener, serve)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        gateway = stack.enter_context(gateway_before([url]))
        with gateway.connect() as connection, connection.makefile("rb") as answer:
            for _ in range(2):
                connection.sendall(b"GET /v1/files HTTP/1.1\r\nHost: g\r\n\r\n")
                head = list(iter(answer.readline, b"\r\n"))
                assert head[0] == b"HTTP/1.1 " + status + b"\r\n"
                assert b'etag: "x"\r\n' in head
            connection.sendall(b"HEAD /v1/files HTTP/1.1\r\nHost: g\r\n\r\n")
            head = list(iter(answer.readline, b"\r\n"))
            assert head[0] == b"HTTP/1.1 " + status + b"\r\n"
        assert "Traceback" not in "".join(gateway.log)
        stop_listening(listener)


def specs(client: httpx.Client) -> set[tuple[str, str | None]]:
    """Return the URL and the engine of each worker."""
    return {(one["url"], one["engine"]) for one in client.get("/workers").json()["workers"]}


IMAGE = {"type": "image_url", "image_url": {"url": "data:;base64,YWJj"}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            ["w0,engine=vllm@0.32.0", "w1,engine=vllm@0.32.0"],
            ["w0,engine=vllm@0.33.0", "w1,engine=vllm@0.32.0"],
            id="its worker has another release",
        ),
        pytest.param(
            ["w0", "w1"],
            ["w2,engine=vllm@0.32.0", "w3,engine=vllm@0.33.0"],
            id="all are replaced",
        ),
    ],
)
def test_the_fleet_changes_while_a_request_waits(
    before: list[str], after: list[str], tmp_path: Path
) -> None:
    """The request must get neither a 500 nor a worker that has left."""
    file = tmp_path / "workers"
    with engines(4) as started, ExitStack() as stack:
        urls = {one.name: one.url for one in started}

        def write(specs: list[str]) -> None:
            replace(file, "".join(f"{urls[spec[:2]]}{spec[2:]}\n" for spec in specs))

        write(before)
        settings = {"gateway.policy": "round-robin"}
        gateway = gateway_before([], "--worker-file", str(file), settings=settings)
        client = stack.enter_context(stack.enter_context(gateway).new_client())
        chat = {"messages": [{"role": "user", "content": [IMAGE]}], "mode": "hang at w0"}
        threads = stack.enter_context(ThreadPoolExecutor())
        requests = [threads.submit(client.post, PATH, json=chat) for _ in before]
        wait_until(lambda: started[0].state()["seen"])
        write(after)
        wait_until(lambda: specs(client) == {(urls[one[:2]], one[10:21]) for one in after})
        wait_until(lambda: all(healthy(client)))
        started[0].kill()
        waiting = max(requests, key=lambda one: one.result().elapsed)
        answer = waiting.result().json()
        assert answer.get("worker") in {spec[:2] for spec in after}, answer
        sent = json.loads(answer["body"])["messages"][0]["content"][0]
        assert sent["uuid"] == vllm.uuid(mmhash.key(b"abc"))  # as the new options say


def test_a_draining_gateway_finishes_its_streams() -> None:
    with fleet_of(1) as (_, gateway, client):
        with client.stream("POST", PATH, json=CHAT | {"stream": True}) as answer:
            pieces = answer.iter_raw()
            received = next(pieces)
            gateway.process.send_signal(signal.SIGTERM)
            received += b"".join(pieces)
        assert received == b"".join(STREAM)
        assert gateway.wait()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_that_outlives_the_grace_period_is_refused_by_name(workers: int) -> None:
    with fleet_of(1, processes=workers, grace_s=0.5) as ((engine,), gateway, client):
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(client.post(PATH, json=CHAT | {"mode": "hang"}))

        thread = Thread(target=ask)
        thread.start()
        wait_until(lambda: engine.state()["seen"])
        gateway.process.send_signal(signal.SIGTERM)
        thread.join()
        (answer,) = answers
        assert (answer.status_code, answer.json()["title"]) == (503, "Draining")
        assert answer.headers["connection"] == "close"
        gateway.wait()
        wait_until(lambda: engine.state()["aborted"] == 1)


def test_a_body_counts_until_the_worker_has_read_it() -> None:
    """A response may begin before the worker has read the body."""
    length = 20 << 20
    head = b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Type: a/b\r\nContent-Length: %d\r\n\r\n"
    is_over = Event()
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:

        def serve(connection: socket.socket) -> None:
            if connection.recv(4096).startswith(b"POST"):
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
                )
                is_over.wait()
                connection.sendall(b"0\r\n\r\n")
            else:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        serve_connections(listener, serve)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        gateway = stack.enter_context(gateway_before([url]))
        client = stack.enter_context(gateway.new_client())
        for _ in range(2):
            is_over.clear()
            with gateway.connect() as connection:
                connection.sendall(head % length + bytes(length))
                assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
                assert count(client, "mmhash_held_bytes") >= length
                is_over.set()
                wait_until(lambda: count(client, "mmhash_held_bytes") < length)
        stop_listening(listener)
