"""Redis replies, bounded before they are read: a server may announce or send anything.

The service asks for strings no longer than an entry, in RESP2. A connection that answers with
anything longer, or with bytes that nobody asked for, is closed.
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

# Redis 7 describes its commands, which clients of a cluster ask for, in 0.2 MB and 20 000 values.
MAX_REPLY = MAX_SEALED + 1024
MAX_VALUES = 1 << 16

# Reading so many values takes about 1 ms: then other tasks get their turn.
_VALUES_PER_TURN = 256

_CRLF = b"\r\n"


class ReplyParser(_AsyncRESP2Parser):
    """The parser of redis-py, over a reader that counts bytes and values."""

    async def read_response(self, disable_decoding: bool = False) -> Any:
        """Return one reply; any that breaks the protocol or a bound is an InvalidResponse."""
        self._bytes_left, self._values_left = MAX_REPLY, MAX_VALUES
        self._is_status = False
        try:
            reply = await super().read_response(disable_decoding)
        except asyncio.IncompleteReadError as error:
            raise RedisConnectionError("the server closed the connection") from error
        # A line without an end, a number that is none, lists nested too deep.
        except (asyncio.LimitOverrunError, ValueError, RecursionError) as error:
            raise InvalidResponse(f"not a Redis reply: {error}") from error
        if await self.can_read():
            raise InvalidResponse("bytes after a reply")
        # A status, such as OK, is text: whoever asked for a value can tell it apart.
        return reply.decode(errors="replace") if self._is_status else reply

    async def _read(self, length: int) -> bytes:
        self._spend(length)
        content: bytes = await self._reader().readexactly(length + len(_CRLF))
        if content[length:] != _CRLF:
            raise InvalidResponse("a string longer than announced")
        return content[:length]

    async def _readline(self) -> bytes:
        line: bytes = await self._reader().readuntil(_CRLF)  # at most 64 KiB
        self._spend(len(line))
        if self._values_left == MAX_VALUES:
            self._is_status = line.startswith(b"+")
        self._values_left -= 1
        if self._values_left < 0:
            raise InvalidResponse("a reply of too many values")
        if self._values_left % _VALUES_PER_TURN == 0:
            await asyncio.sleep(0)
        return line[: -len(_CRLF)]

    def _spend(self, count: int) -> None:
        self._bytes_left -= count
        if count < 0 or self._bytes_left < 0:
            raise InvalidResponse("a reply longer than an entry")

    def _reader(self) -> asyncio.StreamReader:
        if self._stream is None:
            raise RedisConnectionError("the connection is closed")
        return self._stream


class _Checked(AbstractConnection):
    """A connection with that parser, which sends nothing while unread bytes wait."""

    def set_parser(self, parser_class: Any) -> None:  # noqa: ARG002  (redis-py names it)
        """Use our parser, also where hiredis is installed: its replies have no bound."""
        super().set_parser(ReplyParser)

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        """Send a command; the next reply must be to this one."""
        if self.is_connected and await self.can_read():
            await self.disconnect(nowait=True)
            raise RedisConnectionError("bytes that nobody asked for")
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
"""Each kind of connection of redis-py, and ours."""
