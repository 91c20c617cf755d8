"""Long responses: piece by piece, and counted until the client has read them."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from mmhash_service.endpoints.long_response import _PIECE, LongResponse
from mmhash_service.limits.capacity import Limits
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings

SCOPE = {"type": "http", "method": "POST", "path": "/blocks", "headers": []}


@pytest.fixture
def limits() -> Limits:
    return Limits(Settings(max_held_bytes=1 << 20))


class Connection:
    """A connection that notes what is sent, and how much counts as unread at each message."""

    def __init__(self, limits: Limits, *, fails_at: int | None = None) -> None:
        self._limits = limits
        self._fails_at = fails_at
        self.messages: list[Any] = []
        self.unread: list[int] = []

    async def receive(self) -> Any:
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if len(self.messages) == self._fails_at:
            raise OSError("the client has gone")
        self.messages.append(message)
        self.unread.append(self._limits.unread)

    async def answer(self, payload: bytes) -> None:
        """Send a response."""
        await LongResponse(payload, self._limits)(SCOPE, self.receive, self.send)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


@pytest.mark.parametrize("length", [0, 1, _PIECE])
def test_a_short_response_is_sent_at_once_and_not_counted(limits: Limits, length: int) -> None:
    connection = Connection(limits)
    asyncio.run(connection.answer(bytes(length)))
    start, body = connection.messages
    assert dict(start["headers"])[b"content-length"] == b"%d" % length
    assert (body["body"], body.get("more_body", False)) == (bytes(length), False)
    assert connection.unread == [0, 0]


@pytest.mark.parametrize("length", [_PIECE + 1, 2 * _PIECE, 3 * _PIECE - 1])
def test_a_long_response_is_sent_in_pieces(limits: Limits, length: int) -> None:
    payload = bytes(number % 251 for number in range(length))
    connection = Connection(limits)
    asyncio.run(connection.answer(payload))
    start, *pieces, end = connection.messages
    headers = dict(start["headers"])
    assert (start["type"], start["status"]) == ("http.response.start", 200)
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"content-length"] == b"%d" % length
    assert connection.body == payload
    assert all(0 < len(piece["body"]) <= _PIECE and piece["more_body"] for piece in pieces)
    assert (end["body"], end["more_body"]) == (b"", False)
    assert (set(connection.unread), limits.unread) == ({length}, 0)


def test_a_piece_waits_until_the_client_has_read_the_last_one(limits: Limits) -> None:
    """The transport says so by the end of `send`; it holds no more than it has been passed."""
    passed: list[int] = []

    async def run() -> None:
        read = asyncio.Semaphore(0)

        async def send(message: Any) -> None:
            passed.append(len(message.get("body", b"")))
            await read.acquire()

        response = LongResponse(bytes(2 * _PIECE), limits)
        task = asyncio.create_task(response(SCOPE, Connection(limits).receive, send))
        for expected in ([0], [0, _PIECE], [0, _PIECE, _PIECE]):
            for _ in range(5):
                await asyncio.sleep(0)
            assert (passed, limits.unread) == (expected, 2 * _PIECE)
            read.release()
        read.release()
        await task

    asyncio.run(run())
    assert limits.unread == 0


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_client_that_has_gone_no_longer_counts(limits: Limits, fails_at: int) -> None:
    connection = Connection(limits, fails_at=fails_at)
    with suppress(OSError):
        asyncio.run(connection.answer(bytes(3 * _PIECE)))
    assert (len(connection.messages), limits.unread) == (fails_at, 0)


def test_a_response_beyond_the_limit_is_refused_before_its_head(limits: Limits) -> None:
    with limits.reserve_response(limits.max_held - _PIECE):
        connection = Connection(limits)
        with pytest.raises(Problem, match="busy"):
            asyncio.run(connection.answer(bytes(_PIECE + 1)))
        assert connection.messages == []
        asyncio.run(connection.answer(bytes(_PIECE)))  # a short one is not concerned
    assert limits.unread == 0


def test_a_response_longer_than_the_limit_is_sent_if_no_other_is(limits: Limits) -> None:
    connection = Connection(limits)
    asyncio.run(connection.answer(bytes(2 * limits.max_held)))
    assert len(connection.body) == 2 * limits.max_held
