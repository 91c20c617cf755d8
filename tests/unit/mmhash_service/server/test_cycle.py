"""What a client gets of each application, right or wrong, and what the application sees of it."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from mmhash_service.server.cycle import Cycle

OK = b"HTTP/1.1 200 OK\r\n"
FAILED = b"HTTP/1.1 500 Internal Server Error\r\n"


class Transport:
    """Notes each write, and whether the connection is closed."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.writes.append(b"".join(parts))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def nothing(*_: Any) -> None:
    """The rest of a body that has arrived."""


def begin(transport: Any, **options: Any) -> Cycle:
    options = {"method": "GET", "version": "1.1", "keep_alive": True} | options
    return Cycle(
        transport,
        FlowControl(transport),
        ServerState(),
        receive_rest=nothing,
        complete=lambda: None,
        waits_for_100=options.pop("waits_for_100", False),
        **options,
    )


async def sending(messages: list[Message], _scope: Scope, _receive: Receive, send: Send) -> None:
    for message in messages:
        await send(message)


def head(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def piece(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


def answers(*messages: Message, **options: Any) -> Transport:
    """Run an application that sends these messages."""
    transport = Transport()

    async def run() -> None:
        await begin(transport, **options).run(partial(sending, list(messages)), {})

    asyncio.run(run())
    return transport


def test_the_head_goes_with_the_first_piece() -> None:
    transport = answers(head((b"content-length", b"2")), piece(b"ab"))
    assert transport.writes == [OK + b"content-length: 2\r\n\r\nab"]
    assert not transport.is_closed


def test_a_body_without_a_length_has_chunks_that_the_client_understands() -> None:
    messages = head(), piece(b"ab", more=True), piece(b"c")
    assert answers(*messages).writes == [
        OK + b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
        b"1\r\nc\r\n0\r\n\r\n",
    ]
    old = answers(*messages, version="1.0", keep_alive=False)
    assert old.writes == [OK + b"connection: close\r\n\r\nab", b"c"]
    assert old.is_closed


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304)])
def test_a_response_without_a_body_ends_with_its_head(method: str, status: int) -> None:
    body = b"ab" if method == "HEAD" else b""
    transport = answers(head((b"content-length", b"2"), status=status), piece(body), method=method)
    (written,) = transport.writes
    assert written.endswith(b"content-length: 2\r\n\r\n")
    assert not transport.is_closed


def test_a_response_can_close_the_connection() -> None:
    transport = answers(head((b"connection", b"close"), (b"content-length", b"0")), piece(b""))
    assert transport.writes == [OK + b"content-length: 0\r\nconnection: close\r\n\r\n"]
    assert transport.is_closed


@pytest.mark.parametrize("body", [b"abc", b"a"])
def test_a_response_of_another_length_breaks_off(body: bytes) -> None:
    transport = answers(head((b"content-length", b"2")), piece(body))
    assert transport.is_closed
    assert transport.writes == []


def test_a_response_that_does_not_end_breaks_off() -> None:
    transport = answers(head(), piece(b"a", more=True))
    assert transport.is_closed


@pytest.mark.parametrize(
    "messages",
    [[], [piece(b"")], [head((b"a", b"b\r\nc: d"))], [head((b"a\n", b"b"))]],
    ids=["none", "no head", "a line break in a value", "a line break in a name"],
)
def test_an_application_that_does_not_begin_a_response_failed(messages: list[Message]) -> None:
    transport = answers(*messages)
    assert transport.is_closed
    (written,) = transport.writes
    assert written.startswith(FAILED)


def test_a_body_is_received_in_pieces() -> None:
    received: list[Message] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        received.extend([await receive(), await receive()])
        await sending([head((b"content-length", b"0")), piece(b"")], {}, receive, send)
        received.append(await receive())

    transport = run_beside(app, lambda cycle: cycle.end_body(), waits_for_100=True)
    assert [(one["type"], one.get("body")) for one in received] == [
        ("http.request", b"ab"),
        ("http.request", b""),
        ("http.disconnect", None),
    ]
    assert transport.writes[0] == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("cancels", [True, False])
def test_a_client_that_leaves_ends_the_application_if_it_says_so(cancels: bool) -> None:
    ended: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        scope["cycle"].watch(cancels=cancels)
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        ended.append("finished")

    transport = run_beside(app, lambda cycle: cycle.disconnect())
    assert ended == ["cancelled" if cancels else "finished"]
    assert transport.writes == []


def run_beside(app: ASGIApp, act: Callable[[Cycle], None], **options: Any) -> Transport:
    """Run an application whose client has sent two bytes, and act a moment later."""
    transport = Transport()

    async def run() -> None:
        cycle = begin(transport, method="POST", **options)
        cycle.feed(b"ab")
        asyncio.get_running_loop().call_later(0.01, act, cycle)
        await asyncio.create_task(cycle.run(app, {"cycle": cycle}))

    asyncio.run(run())
    return transport
