"""The attacker answers a client in place of the service: slowly, without end, malformed, about others.

Every call ends within its time-out and within bounded memory, with a ServiceError that says why.
"""

import gzip
import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.client import Client, Span
from tests.support.blocking import BlockingAsyncClient
from tests.support.listening import serve_connections, stop_listening

pytestmark = pytest.mark.slow

Act = Callable[[socket.socket], None]

CONTENT = b"an item"
TENSOR = np.arange(12, dtype=np.float32).reshape(3, 4)
# The time-out of calls that the service never answers.
TIMEOUT_S = 0.3
# What separates "bounded" from "hangs", on a machine that does other work too.
SOON_S = 60.0


class Service:
    """A server of raw sockets: it reads each request to its end, and acts as it is told."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(60)
            while True:
                head = b""
                while b"\r\n\r\n" not in head:
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    head += piece
                head, _, body = head.partition(b"\r\n\r\n")
                length = 0
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                while len(body) < length:
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    body += piece
                self.requests.append(head)
                self._act(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for thread in self._threads:
            thread.join(SOON_S)
            assert not thread.is_alive(), "the client kept the connection"


@contextmanager
def serving(act: Act) -> Iterator[Service]:
    service = Service(act)
    try:
        yield service
    finally:
        service.close()


def answer(body: bytes, *, status: str = "200 OK", **headers: str) -> bytes:
    fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1") + body


def sends(content: bytes) -> Act:
    return lambda connection: connection.sendall(content)


def item(content: Any = CONTENT, **changes: Any) -> dict[str, Any]:
    is_array = isinstance(content, np.ndarray)
    described = {
        "name": None,
        "kind": "tensor" if is_array else "bytes",
        "dtype": str(content.dtype) if is_array else "",
        "shape": list(content.shape) if is_array else [],
        "nbytes": content.nbytes if is_array else len(content),
        "algorithm": "blake3",
        "digest": mmhash.digest(content).hex(),
        "key": mmhash.key(content).hex(),
    }
    return {name: value for name, value in (described | changes).items() if value is not ...}


def items(*given: Any) -> bytes:
    return answer(json.dumps({"items": given, "elapsed_ms": 0.1}).encode())


def hash_one(client: Client) -> Any:
    return client.hash(CONTENT)


@pytest.fixture(params=[Client, BlockingAsyncClient], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Any:
    return request.param


def refused(connect: Any, act: Act, call: Any = hash_one, **options: Any) -> mmhash.ServiceError:
    """The error of a call that the service attacks; it comes soon and costs little memory."""
    options = {"timeout_s": SOON_S / 3, "retries": 1} | options
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with serving(act) as service, connect(service.url, **options) as client:
        start = time.monotonic()
        with pytest.raises(mmhash.ServiceError) as caught:
            call(client)
        assert time.monotonic() - start < SOON_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # in KiB
    assert 0 < len(str(caught.value)) < 1200
    assert str(caught.value).isprintable()
    return caught.value


def drips(before: bytes, drop: bytes, pause_s: float = 0.05) -> Act:
    def act(connection: socket.socket) -> None:
        connection.sendall(before)
        for _ in range(2000):
            connection.sendall(drop)
            time.sleep(pause_s)

    return act


def floods(before: bytes, piece: bytes) -> Act:
    def act(connection: socket.socket) -> None:
        connection.sendall(before)
        for _ in range((4 << 30) // len(piece)):
            connection.sendall(piece)

    return act


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"10000\r\n" + b" " * 65536 + b"\r\n"


SLOW_BODIES = [
    drips(HEAD + b"Content-Length: 1000\r\n\r\n", b" "),
    drips(CHUNKED, b"1\r\n \r\n"),
    drips(b"HTTP/1.1 503 Busy\r\nContent-Length: 1000\r\n\r\n", b" "),
    lambda _: time.sleep(3 * TIMEOUT_S),
]
# A Client checks its deadline between the pieces of a body, an AsyncClient at any time.
SLOW_HEADS = [
    drips(HEAD + b"X-A: ", b"a"),
    drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    drips(CHUNKED + b"0\r\nX-A: ", b"a"),
]


@pytest.mark.parametrize("act", SLOW_BODIES)
def test_what_comes_slowly_ends_with_the_timeout(connect: Any, act: Act) -> None:
    assert "longer than 0.3 s" in str(refused(connect, act, timeout_s=TIMEOUT_S))


@pytest.mark.parametrize("act", SLOW_HEADS)
def test_a_slow_head_ends_with_the_timeout_of_an_async_client(act: Act) -> None:
    refused(BlockingAsyncClient, act, timeout_s=TIMEOUT_S)


def test_a_service_that_reads_slowly_ends_with_the_timeout(connect: Any) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def read_slowly(connection: socket.socket) -> None:
        while not stopped.wait(0.02):
            connection.recv(1024)

    serve_connections(listener, read_slowly)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with (
        connect(url, timeout_s=TIMEOUT_S) as client,
        pytest.raises(mmhash.ServiceError, match=r"longer than 0\.3 s"),
    ):
        client.hash([bytes(32 << 20)])
    stopped.set()
    stop_listening(listener)  # a client whose time was over before it connected is not waited for


@pytest.mark.parametrize(
    "act",
    [
        floods(CHUNKED, CHUNK),
        floods(HEAD + b"\r\n", b"[" * 65536),
        floods(HEAD + b"Content-Length: 9999999999999\r\n\r\n", b" " * 65536),
        floods(HEAD, b"X-A: " + b"a" * 1000 + b"\r\n"),
        floods(CHUNKED, b"1\r\n \r\n" * 10_000),
        floods(CHUNKED + b"0\r\n", b"X-A: " + b"a" * 1000 + b"\r\n"),
        floods(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNK),
    ],
)
def test_what_has_no_end_is_cut_off(connect: Any, act: Act) -> None:
    refused(connect, act)


def test_an_answer_in_proportion_is_taken_and_a_longer_one_is_not(connect: Any) -> None:
    padded = json.dumps({"items": [item()] * 100}).encode()
    act = sends(answer(padded + b" " * 300_000))
    with serving(act) as service, connect(service.url) as client:
        assert len(client.hash([CONTENT] * 100)) == 100
    error = refused(connect, sends(answer(items(item()) + b" " * 300_000)))
    assert "longer than" in str(error)
    assert error.status is None


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "GZIP", "x"])
def test_what_is_encoded_is_refused(connect: Any, encoding: str) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    error = refused(connect, sends(answer(bomb, Content_Encoding=encoding)))
    assert "Content-Encoding" in str(error)


def test_redirects_are_not_followed(connect: Any) -> None:
    with serving(sends(items(item()))) as other:
        act = sends(answer(b"", status="307 Moved", Location=other.url + "/hash"))
        error = refused(connect, act)
        assert not other.requests
    assert error.status == 307
    assert "redirect" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"\xff\xfe{}",
        b'{"items": null}',
        b'{"items": []}',
        b'{"items": [null]}',
        b'{"items": NaN}',
        b"[" * 50_000,
        b'{"a":' * 7000 + b"1" + b"}" * 7000,
        b'{"items": [{}',
        json.dumps({"items": [item(), item()]}).encode(),
    ],
    ids=lambda body: repr(body[-30:]),
)
def test_what_is_not_an_answer_is_refused(connect: Any, body: bytes) -> None:
    error = refused(connect, sends(answer(body)))
    assert error.status == 200
    assert "the response" in str(error)


ANOTHER = "ab" * 32


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "tensor"},
        {"kind": None},
        {"dtype": "float32"},
        {"shape": [1]},
        {"shape": [-1]},
        {"nbytes": 8},
        {"nbytes": True},
        {"nbytes": 10**400},
        {"algorithm": "xxh3"},
        {"algorithm": {}},
        {"digest": ANOTHER.upper()},
        {"digest": ANOTHER[:-2] + "\uff11\uff11"},
        {"digest": ANOTHER + "\n"},
        {"digest": "ab" * 16},
        {"key": ANOTHER * 2},
        {"key": ...},
        {"memo": "maybe"},
        {"tag": {}},
        {"engines": {"vllm": {"uuid": "a"}}},
    ],
    ids=repr,
)
def test_an_answer_about_something_else_is_refused(connect: Any, changes: Any) -> None:
    error = refused(connect, sends(items(item(**changes))))
    assert "does not match the request" in str(error)


@pytest.mark.parametrize(
    "other",
    [TENSOR.reshape(4, 3), TENSOR.astype(np.float64), TENSOR.view(np.int32), CONTENT],
    ids=["shape", "size", "dtype", "bytes"],
)
def test_an_answer_about_another_tensor_is_refused(connect: Any, other: Any) -> None:
    refused(connect, sends(items(item(other))), lambda client: client.hash(TENSOR))
    two = sends(items(item(TENSOR), item(other)))
    refused(connect, two, lambda client: client.hash([TENSOR, TENSOR]))


BLOCKS = {"blocks": ["ab" * 32] * 2, "event_ids": [1, 2]}


@pytest.mark.parametrize(
    ("call", "payload"),
    [
        ("info", {"in_place": [5]}),
        ("pad", {"input_ids": [5, 6]}),
        ("pad", {"input_ids": [5, "1", 1, 8]}),
        ("blocks", BLOCKS | {"blocks": ["AB" * 32] * 2}),
        ("blocks", BLOCKS | {"event_ids": [1]}),
        ("blocks", BLOCKS | {"groups": [BLOCKS | {"block_size": 2}]}),
        ("annotate", {"request": [], "items": []}),
        ("annotate", {"request": {}, "items": [item(engines={"sglang": {}})]}),
        ("plan", BLOCKS | {"token_ids": [1], "items": [], "spans": [{}], "request": {}}),
    ],
)
def test_an_answer_to_another_request_is_refused(connect: Any, call: str, payload: Any) -> None:
    ask: dict[str, Any] = {
        "info": lambda client: client.info(),
        "pad": lambda client: client.pad([5, 6, 7, 8], [Span(1, 3, mmhash.key(b"x"))]),
        "blocks": lambda client: client.blocks([5, 6, 7, 8], 2, engine="vllm", groups=[4]),
        "annotate": lambda client: client.annotate({"messages": []}, engine="vllm"),
        "plan": lambda client: client.plan({"messages": []}, model="m", engine="vllm"),
    }
    refused(connect, sends(answer(json.dumps(payload).encode())), ask[call])
