"""Network backends of httpcore whose streams keep the limits of a request.

The time-outs of httpcore start anew with each byte; the streams here limit a request as a whole.
"""

import select
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import httpcore

from mmhash.client.bounds import current_bounds


class Backend(httpcore.NetworkBackend):
    """Opens connections on which each wait ends at the deadline of the call."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002  (the limits of the call apply)
        local_address: str | None = None,  # noqa: ARG002  (not used)
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Connect to a host and port."""
        try:
            seconds = current_bounds().seconds_left(httpcore.ConnectTimeout)
            connected = socket.create_connection((host, port), seconds)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from error
        return _Stream(connected)

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ARG002  (as above)
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Connect to a Unix socket."""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(current_bounds().seconds_left(httpcore.ConnectTimeout))
            connected.connect(path)
        except BaseException as error:
            connected.close()
            if isinstance(error, TimeoutError):
                raise httpcore.ConnectTimeout(str(error)) from error
            if isinstance(error, OSError):
                raise httpcore.ConnectError(str(error)) from error
            raise
        return _Stream(connected)


class _Stream(httpcore.NetworkStream):
    """A socket, within the limits of the request that uses it."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        bounds = current_bounds()
        try:
            self._socket.settimeout(bounds.seconds_left(httpcore.ReadTimeout))
            received = self._socket.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error
        bounds.count(len(received))
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        bounds = current_bounds()
        left = memoryview(buffer)
        try:
            while left:
                self._socket.settimeout(bounds.seconds_left(httpcore.WriteTimeout))
                left = left[self._socket.send(left) :]
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        # Otherwise a thread that waits for this socket would wait until its deadline.
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self._socket.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        if isinstance(self._socket, ssl.SSLSocket):
            self.close()
            raise httpcore.ConnectError("a proxy at https:// cannot carry an https:// service")
        try:
            self._socket.settimeout(current_bounds().seconds_left(httpcore.ConnectTimeout))
            wrapped = ssl_context.wrap_socket(self._socket, server_hostname=server_hostname)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise httpcore.ConnectTimeout(str(error)) from error
            if isinstance(error, (OSError, ValueError)):
                raise httpcore.ConnectError(str(error)) from error
            raise
        return _Stream(wrapped)

    def get_extra_info(self, info: str) -> Any:
        if info == "socket":
            return self._socket
        if info == "is_readable":
            return _is_readable(self._socket)
        return None


class AsyncBackend(httpcore.AnyIOBackend):
    """Opens connections that count received bytes; asyncio.timeout() limits the time."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore's signature)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to a host and port."""
        try:
            stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        except UnicodeError as error:
            raise httpcore.ConnectError(str(error)) from error
        return _AsyncStream(stream)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore's signature)
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to a Unix socket."""
        return _AsyncStream(await super().connect_unix_socket(path, timeout, socket_options))


class _AsyncStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        received = await self._stream.read(max_bytes, timeout)
        current_bounds().count(len(received))
        return received

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore's signature)
    ) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _is_readable(connected: socket.socket) -> bool:
    """Return True if an idle connection was closed, or has bytes that were not requested."""
    descriptor = connected.fileno()
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
