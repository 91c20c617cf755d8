"""Content by http(s) URL, from real hosts that behave well or badly."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trustme

from mmhash_service.fetch.fetcher import Fetcher
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics
from tests.support.origin import Origin

LIMIT = 1 << 20
LOOPBACK = ("127.0.0.0/8",)
HEAD = "HTTP/1.1 200 OK\r\n"


async def local(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@contextmanager
def counted(result: str) -> Iterator[None]:
    """Assert that one more fetch is counted."""
    before = metrics.FETCHES.labels(result)._value.get()
    yield
    assert metrics.FETCHES.labels(result)._value.get() == before + 1


class Got:
    """Return the content of one or several URLs."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []
        self.etags: list[str | None] = []
        self.unchanged: list[bool] = []


def get(
    origin: Any,
    *paths: str,
    known: str | None = None,
    tls: ssl.SSLContext | None = None,
    scheme: str | None = None,
    **settings: Any,
) -> Got:
    """Fetch these one after another, by one fetcher."""
    changed = {
        "url_hosts": [f"name.example:{origin.port}"],
        "url_networks": LOOPBACK,
        "max_body_bytes": LIMIT,
        "timeout_s": 60,
    }
    got = Got()

    async def fetch() -> None:
        fetcher = Fetcher(Settings(**(changed | settings)), local, tls)
        base = f"{scheme or ('https' if tls else 'http')}://name.example:{origin.port}"
        try:
            for path in paths:
                url = fetcher.allowed(base + path)
                content = bytearray()

                def take(piece: bytes, content: bytearray = content) -> None:
                    content.extend(piece)

                async with fetcher.get(url, known) as remote:
                    if not remote.unchanged:
                        await remote.read(take)
                got.contents.append(bytes(content))
                got.etags.append(remote.etag)
                got.unchanged.append(remote.unchanged)
        finally:
            await fetcher.close()

    asyncio.run(fetch())
    return got


def refusal(origin: Any, path: str = "/", **more: Any) -> str:
    with pytest.raises(Problem) as refused:
        get(origin, path, **more)
    # The log is told why, unless the name of the problem says it all.
    assert (refused.value.__cause__ is None) == (refused.value.name == "body-too-large")
    return refused.value.name


def test_content_arrives_unchanged(origin: Any) -> None:
    content = bytes(at % 251 for at in range(300_000))
    origin.answers["/a?b=c"] = origin.ok(content, 'ETag: "e"')
    with counted("fetched"):
        got = get(origin, "/a?b=c")
    assert got.contents == [content]
    assert got.etags == ['"e"']
    (head,) = origin.heads
    lines = head.split("\r\n")
    assert lines[:2] == ["GET /a?b=c HTTP/1.1", f"Host: name.example:{origin.port}"]
    assert "Accept-Encoding: identity" in lines
    assert not {line.split(":")[0].lower() for line in lines} & {
        "cookie",
        "authorization",
        "referer",
        "if-none-match",
    }


def test_a_connection_that_its_host_closed_is_not_used_again(origin: Any) -> None:
    origin.answers["/"] = lambda connection: connection.sendall(origin.ok(b"abc"))
    assert get(origin, *["/"] * 5).contents == [b"abc"] * 5
    assert origin.connections == 5


def test_a_request_is_retried_once_if_the_host_hangs_up(origin: Any) -> None:
    turns = iter([b"", origin.ok(b"abc"), b"", b""])
    origin.answers["/"] = lambda connection: connection.sendall(next(turns))
    assert get(origin, "/").contents == [b"abc"]
    assert refusal(origin) == "url-failed"
    assert len(origin.heads) == 4


def test_no_proxy_is_asked(origin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    origin.answers["/"] = origin.ok(b"abc")
    assert get(origin, "/").contents == [b"abc"]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (HEAD + "Content-Length: 4\r\nConnection: close\r\n\r\nabc", "url-failed"),  # short
        (HEAD + "\r\nabc", "url-failed"),  # none
        (HEAD + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "url-failed"),
        (HEAD + "Content-Length: -3\r\n\r\nabc", "url-failed"),
        (HEAD + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "url-failed"),
        (HEAD + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "url-failed"),
        (HEAD + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "url-failed"),
        (HEAD + "Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n", "url-failed"),
        (HEAD + f"Content-Length: {LIMIT + 1}\r\n\r\n", "body-too-large"),
        (HEAD + f"Content-Length: {10**18}\r\n\r\n", "body-too-large"),
        (HEAD + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", "url-failed"),
        (HEAD + "Content-Encoding: br, identity\r\nContent-Length: 3\r\n\r\nabc", "url-failed"),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabc", "url-failed"),
        ("HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nabc", "url-failed"),
        ("HTTP/1.1 204 No Content\r\n\r\n", "url-failed"),
        ("HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nabc", "url-failed"),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", "url-failed"),  # and nobody asked
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "url-failed"),
        ("HTTP/1.1 300 Choices\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n", "url-failed"),
        ("HTTP/1.1 200 OK\r\nA B: c\r\nContent-Length: 0\r\n\r\n", "url-failed"),
        ("HTTP/2 200\r\nContent-Length: 0\r\n\r\n", "url-failed"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "url-failed"),
        ("", "url-failed"),
        (HEAD + "X: " + "x" * 200_000, "url-failed"),
    ],
)
def test_a_malformed_response_is_refused(origin: Any, answer: str, problem: str) -> None:
    def send(connection: socket.socket) -> None:
        connection.sendall(answer.encode())

    origin.answers["/"] = send
    with counted(problem):
        assert refusal(origin) == problem


def test_a_response_without_a_length_has_the_same_limit(origin: Any) -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        while True:
            connection.sendall(b"8000\r\n" + bytes(0x8000) + b"\r\n")

    origin.answers["/"] = endless
    assert refusal(origin) == "body-too-large"
    origin.answers["/full"] = origin.ok(bytes(LIMIT))
    assert get(origin, "/full").contents == [bytes(LIMIT)]


def silent(connection: socket.socket) -> None:
    connection.recv(1)


def slow_head(connection: socket.socket) -> None:
    for _ in range(1000):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.02)


def slow_body(connection: socket.socket) -> None:
    connection.sendall(f"{HEAD}Content-Length: 1000\r\n\r\n".encode())
    for _ in range(1000):
        connection.sendall(b"a")
        time.sleep(0.02)


def stuck_body(connection: socket.socket) -> None:
    connection.sendall(f"{HEAD}Content-Length: 1000\r\n\r\na".encode())
    connection.recv(1)


@pytest.mark.parametrize("act", [silent, slow_head, slow_body, stuck_body])
def test_a_slow_host_is_given_up(origin: Any, act: Callable[[socket.socket], None]) -> None:
    origin.answers["/"] = act
    with counted("url-timeout"):
        assert refusal(origin, timeout_s=0.3) == "url-timeout"


def test_a_host_that_was_given_up_frees_its_connection(
    origin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin.answers["/"] = silent
    origin.answers["/b"] = origin.ok(b"abc")

    async def fetch() -> None:
        settings = Settings(
            url_hosts=[f"name.example:{origin.port}"], url_networks=LOOPBACK, timeout_s=1
        )
        fetcher = Fetcher(settings, local)
        base = f"http://name.example:{origin.port}"

        async def ask(path: str) -> None:
            async with fetcher.get(fetcher.allowed(base + path), None) as remote:
                await remote.read(lambda _: None)

        # More than the pool has connections: the last ones wait for one, and in vain.
        failed = await asyncio.gather(*[ask("/") for _ in range(40)], return_exceptions=True)
        assert {str(problem) for problem in failed} == {"url-timeout"}
        monkeypatch.setattr(fetcher, "_timeout_s", 60)
        await ask("/b")
        await fetcher.close()

    asyncio.run(fetch())


def redirect(location: str, status: int = 302) -> bytes:
    head = f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 4\r\n\r\ngone"
    return head.encode("latin-1")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(origin: Any, status: int) -> None:
    origin.answers["/"] = redirect("/b", status)
    with counted("url-refused"):
        assert refusal(origin) == "url-refused"
    assert len(origin.heads) == 1


def test_a_private_address_is_refused_unless_its_network_is_named(origin: Any) -> None:
    origin.answers["/"] = origin.ok(b"secret")
    assert refusal(origin, url_networks=[]) == "url-refused"
    assert refusal(origin, url_networks=["127.0.0.2/31", "10.0.0.0/8", "::/0"]) == "url-refused"
    assert origin.connections == 0
    assert get(origin, "/", url_networks=["127.0.0.1/32"]).contents == [b"secret"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def secure(authority: trustme.CA) -> Iterator[Callable[[str], Any]]:
    """Make a host that proves to have that name."""
    made = []

    def make(name: str) -> Any:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(name).configure_cert(context)
        made.append(Origin(tls=context))
        return made[-1]

    yield make
    for origin in made:
        origin.close()


def test_tls_proves_the_name_of_the_url(
    secure: Callable[[str], Any], authority: trustme.CA
) -> None:
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    good, bad = secure("name.example"), secure("other.example")
    for origin in (good, bad):
        origin.answers["/"] = origin.ok(b"abc")
    assert get(good, "/", "/", tls=trust).contents == [b"abc", b"abc"]
    assert good.connections == 1
    assert refusal(bad, tls=trust) == "url-failed"
    assert refusal(good, tls=ssl.create_default_context()) == "url-failed"
    assert bad.heads == []
