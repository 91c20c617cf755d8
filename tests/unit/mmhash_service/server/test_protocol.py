"""When connections close. tests/attacks/ tests what hostile clients try."""

import asyncio
import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from mmhash_service.bodies.reading import CYCLE
from mmhash_service.server import protocol

KEEP_ALIVE_S = 0.2
HEAD = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def test_connections_leave_descriptors_to_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, expected in ((1024, 448), (64, 1), (resource.RLIM_INFINITY, sys.maxsize)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert protocol.max_connections() == expected


async def respond(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond at once, or when the first byte of the body is refused."""
    if scope["path"] == "/refuse":
        with pytest.raises(ValueError, match="refused"):
            await scope[CYCLE].receive_body(refuse, lambda _nbytes: None)
    elif scope["path"] == "/slow":
        await asyncio.sleep(KEEP_ALIVE_S / 2)
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def refuse(piece: bytes | memoryview) -> None:
    if piece:
        raise ValueError("refused")


def run(talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Let a client talk to a server that keeps idle connections for KEEP_ALIVE_S."""
    config = uvicorn.Config(respond, log_config=None, lifespan="off")
    config.timeout_keep_alive = KEEP_ALIVE_S  # type: ignore[assignment]  # (a number of seconds)
    config.load()

    def new_protocol() -> Any:
        return protocol.BoundedProtocol(config, ServerState(), {}, stall_timeout_s=60)

    async def run_both() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = await asyncio.get_running_loop().create_server(new_protocol, sock=listener)
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            try:
                async with asyncio.timeout(5):
                    await talk(reader, writer)
            finally:
                writer.close()
                server.close()

    uvloop.run(run_both())


@pytest.mark.parametrize(
    ("first", "rest"),
    [(b"GET / HTTP/1.1\r\n\r\n", b"\r\n"), (HEAD + b"1234", b"56789")],
    ids=["a line break", "the rest of the body"],
)
def test_a_connection_is_idle_whatever_ends_the_last_request(first: bytes, rest: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        assert await reader.readexactly(len(RESPONSE)) == RESPONSE
        writer.write(rest)
        assert await reader.read() == b""

    run(talk)


def test_a_connection_is_not_idle_while_a_refused_body_arrives() -> None:
    """The client reads the response only after it has sent the body."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD.replace(b"/", b"/refuse", 1))
        for _ in range(9):
            await asyncio.sleep(KEEP_ALIVE_S / 3)
            writer.write(b"x")
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == 2 * RESPONSE

    run(talk)


def test_a_connection_is_not_idle_while_the_next_head_arrives() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /slow HTTP/1.1\r\n\r\nGET / HT")
        await asyncio.sleep(3 * KEEP_ALIVE_S)
        writer.write(b"TP/1.1\r\n\r\n")
        assert await reader.read() == 2 * RESPONSE

    run(talk)
