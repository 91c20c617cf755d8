"""Size limits for Redis replies, checked before a reply is read.

The service requests strings no longer than an entry, in RESP2. It closes a connection that sends
anything longer, or bytes that are not a reply to a command.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from redis._parsers import _AsyncRESP2Parser
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from mmhash_service.memo.entries import MAX_SEALED

# The longest reply besides an entry is that to COMMAND, which cluster clients send: 0.2 MB and
# 20 000 values in Redis 7.
MAX_REPLY = MAX_SEALED + 1024
MAX_VALUES = 1 << 16

# Reading this many values takes about 1 ms; then the parser yields to other tasks.
_VALUES_PER_YIELD = 256

_CRLF = b"\r\n"


class ReplyParser(_AsyncRESP2Parser):
    """The parser of redis-py with limits on bytes and values."""

    async def read_response(self, disable_decoding: bool = False) -> Any:
        """Return one reply; raise InvalidResponse if it violates the protocol or a limit."""
        self._bytes_left, self._values_left = MAX_REPLY, MAX_VALUES
        self._is_status = False
        try:
            reply = await super().read_response(disable_decoding)
        except asyncio.IncompleteReadError as error:
            raise RedisConnectionError("the server closed the connection") from error
        # A line without an end, an invalid number, lists nested too deep.
        except (asyncio.LimitOverrunError, ValueError, RecursionError) as error:
            raise InvalidResponse(f"invalid Redis reply: {error}") from error
        if await self.can_read():
            raise InvalidResponse("unexpected bytes after a reply")
        # A status such as OK is returned as str, so that it cannot be mistaken for a value.
        return reply.decode(errors="replace") if self._is_status else reply

    async def _read(self, length: int) -> bytes:
        self._spend(length)
        content: bytes = await self._reader().readexactly(length + len(_CRLF))
        if content[length:] != _CRLF:
            raise InvalidResponse("a string is longer than announced")
        return content[:length]

    async def _readline(self) -> bytes:
        line: bytes = await self._reader().readuntil(_CRLF)  # at most 64 KiB
        self._spend(len(line))
        if self._values_left == MAX_VALUES:
            self._is_status = line.startswith(b"+")
        self._values_left -= 1
        if self._values_left < 0:
            raise InvalidResponse("a reply has too many values")
        if self._values_left % _VALUES_PER_YIELD == 0:
            await asyncio.sleep(0)
        return line[: -len(_CRLF)]

    def _spend(self, count: int) -> None:
        self._bytes_left -= count
        if count < 0 or self._bytes_left < 0:
            raise InvalidResponse("a reply is longer than an entry")

    def _reader(self) -> asyncio.StreamReader:
        if self._stream is None:
            raise RedisConnectionError("the connection is closed")
        return self._stream


class _Checked(AbstractConnection):
    """A connection with ReplyParser that refuses to send a command while it has unread bytes."""

    def set_parser(self, parser_class: Any) -> None:  # noqa: ARG002  (redis-py's signature)
        """Use ReplyParser even if hiredis is installed: hiredis has no limits."""
        super().set_parser(ReplyParser)

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        """Send a command, unless unread bytes would be taken for its reply."""
        if self.is_connected and await self.can_read():
            await self.disconnect(nowait=True)
            raise RedisConnectionError("unexpected bytes before a command")
        await super().send_packed_command(command, check_health)


class _CheckedPlain(_Checked, Connection):
    pass


class _CheckedTls(_Checked, SSLConnection):
    pass


class _CheckedManaged(_Checked, SentinelManagedConnection):
    pass


class _CheckedManagedTls(_Checked, SentinelManagedSSLConnection):
    pass


CHECKED: dict[type[AbstractConnection], type[AbstractConnection]] = {
    Connection: _CheckedPlain,
    SSLConnection: _CheckedTls,
    SentinelManagedConnection: _CheckedManaged,
    SentinelManagedSSLConnection: _CheckedManagedTls,
}
"""Maps each connection class of redis-py to its checked subclass."""
