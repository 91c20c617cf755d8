"""The body's limit: kept whether the client says the length, lies about it, or says none."""

import socket
import struct
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest

import mmhash
from mmhash_service.app import create_app
from mmhash_service.limits import MAX_INLINE
from mmhash_service.settings import Settings

RAW = {"content-type": "application/octet-stream"}
HEAD = (
    b"POST /hash HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"
    b"Content-Type: application/octet-stream\r\n"
)


def pieces(total: int) -> Iterator[bytes]:
    """A body of no declared length: httpx sends it chunked."""
    for start in range(0, total, 65536):
        yield bytes(min(65536, total - start))


@pytest.fixture
def limit(server: Any) -> int:
    return server.uvicorn.config.app.state.settings.max_body_bytes


def test_a_body_of_the_limit_is_read(client: httpx.Client, limit: int) -> None:
    assert client.post("/hash", content=bytes(limit), headers=RAW).status_code == 200
    assert client.post("/hash", content=pieces(limit), headers=RAW).status_code == 200


def test_a_declared_length_over_the_limit_is_refused(client: httpx.Client, limit: int) -> None:
    answer = client.post("/hash", content=bytes(limit + 1), headers=RAW)
    assert answer.status_code == 413
    assert answer.json()["type"] == "urn:mmhash:problem:body-too-large"


def test_a_declared_length_over_the_limit_is_refused_before_the_body_comes(server: Any) -> None:
    answer = server.send_raw(HEAD + b"Content-Length: 9223372036854775807\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_client_that_waits_for_leave_is_refused_without_it(server: Any) -> None:
    answer = server.send_raw(
        HEAD + b"Expect: 100-continue\r\nContent-Length: 9223372036854775807\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_over_the_limit_is_refused(client: httpx.Client, limit: int) -> None:
    answer = client.post("/hash", content=pieces(limit + 1), headers=RAW)
    assert answer.status_code == 413
    assert answer.json()["type"] == "urn:mmhash:problem:body-too-large"


def test_the_connection_still_serves_after_a_refusal(client: httpx.Client, limit: int) -> None:
    for _ in range(3):
        assert client.post("/hash", content=bytes(limit + 1), headers=RAW).status_code == 413
        assert client.post("/hash", content=b"abc", headers=RAW).status_code == 200


def test_an_image_over_the_limit_is_refused(client: httpx.Client, limit: int) -> None:
    answer = client.post(
        "/hash?of=pixels", content=pieces(limit + 1), headers={"content-type": "image/png"}
    )
    assert answer.status_code == 413


def test_what_follows_the_declared_length_is_not_hashed(server: Any) -> None:
    answer = server.send_raw(HEAD + b"Content-Length: 3\r\n\r\nabcdef")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert mmhash.digest(b"abc").hex().encode() in answer


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: -1\r\n",
        b"Content-Length: 3x\r\n",
        b"Content-Length: 99999999999999999999999999\r\n",
        b"Content-Length: 3\r\nContent-Length: 4\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_a_length_that_makes_no_sense_is_refused(server: Any, lengths: bytes) -> None:
    assert server.send_raw(HEAD + lengths + b"\r\nabc").startswith(b"HTTP/1.1 400 ")
    assert server.client.get("/health").status_code == 200


@pytest.mark.parametrize("query", [b"", b"?of=pixels", b"?dtype=uint8&shape=1000"])
@pytest.mark.parametrize("abruptly", [False, True])
def test_a_client_that_leaves_half_way_is_no_failure(
    server: Any, caplog: pytest.LogCaptureFixture, query: bytes, abruptly: bool
) -> None:
    kind = b"image/png" if b"pixels" in query else b"application/octet-stream"
    with socket.create_connection(server.address, timeout=60) as connection:
        connection.sendall(
            b"POST /hash%b HTTP/1.1\r\nHost: test\r\nContent-Type: %b\r\n" % (query, kind)
            + b"Content-Length: 1000\r\n\r\nhalf"
        )
        if abruptly:  # a reset instead of an end
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert server.client.get("/health").status_code == 200
    server.wait_until_idle()
    assert not caplog.records


def test_a_piece_longer_than_uvicorn_gives_is_taken_too() -> None:
    """Straight into the app: only a server other than ours gives it such a piece."""
    body = bytes(i % 251 for i in range(MAX_INLINE + 1))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(Settings(max_body_bytes=len(body))))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post("/hash", content=body, headers=RAW)

    answer = anyio.run(ask)
    assert answer.json()["items"][0]["key"] == mmhash.key(body).hex()
