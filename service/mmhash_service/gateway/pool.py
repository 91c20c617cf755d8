"""The connections to one worker: idle ones are used again, the newest first."""

import asyncio
import ssl
from functools import cache

import httpx

from mmhash_service.gateway.connection import Connection, RefusedError, UnreachableError

# Shorter than the 5 s after which engines (uvicorn) close idle connections.
_IDLE_S = 4.0
_MAX_IDLE = 256


class Pool:
    """Opens connections to the host of a URL, and keeps those that are idle."""

    def __init__(self, url: str, connect_timeout_s: float) -> None:
        parsed = httpx.URL(url)
        self.host_header = parsed.netloc
        self.path_prefix = parsed.raw_path.rstrip(b"/")
        self._host = parsed.host
        self._port = parsed.port or (443 if parsed.scheme == "https" else 80)
        self._is_tls = parsed.scheme == "https"
        self._timeout_s = connect_timeout_s
        self._idle: list[Connection] = []
        self._is_closed = False

    def take_idle(self) -> Connection | None:
        """Return an idle connection, or None."""
        oldest = asyncio.get_running_loop().time() - _IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.used_at > oldest and connection.can_send:
                return connection
            connection.abort("idle for too long, or closed by the worker")
        return None

    async def open(self) -> Connection:
        """Open a connection; a failure is an UnreachableError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                _, connection = await loop.create_connection(
                    Connection, self._host, self._port, ssl=_trust() if self._is_tls else None
                )
        except ConnectionRefusedError as error:
            raise RefusedError(f"{self._host}:{self._port}: {error!r}") from error
        except (OSError, TimeoutError, UnicodeError) as error:  # the last one by a host's IDNA
            raise UnreachableError(f"{self._host}:{self._port}: {error!r}") from error
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request if it can carry one, or close it."""
        if connection.release():
            if self._is_closed:
                connection.abort("the pool is closed")
            elif len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
            else:
                connection.abort("too many idle connections")

    def close_idle(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().abort("idle connections are closed")

    def close(self) -> None:
        """Close the idle connections, and each of the others when it is given back."""
        self._is_closed = True
        self.close_idle()


@cache
def _trust() -> ssl.SSLContext:
    """Return the certificate authorities of the system, which are slow to load."""
    return ssl.create_default_context()
