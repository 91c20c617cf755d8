"""The sockets that a server listens on."""

import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mmhash.errors import MMHashError
from mmhash_service.settings import Settings

logger = logging.getLogger(__name__)

_BACKLOG = 2048

# The kernel keeps this many unread bytes of a connection, and takes as much for its own records.
# Without a limit, buffers grow to net.ipv4.tcp_rmem. They count as the container's memory, and
# their bytes have left the processor's cache before they are read. Smaller buffers would slow down
# a single connection slightly.
_UNREAD_BYTES = 4 << 20


class ListenError(MMHashError):
    """The server cannot listen on its address."""


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """Listen on the address in the settings, and remove a Unix socket at the end."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family if settings.uds is None else socket.AF_UNIX) as listener:
        try:
            _bind(settings, listener)
            listener.listen(_BACKLOG)
        except OSError as error:
            if settings.uds is not None and settings.uds.exists() and not settings.uds.is_socket():
                raise ListenError(
                    f"cannot listen on unix:{settings.uds}: the path exists and is not a Unix "
                    "socket. Remove it, or choose another one with --uds."
                ) from error
            stop = "Stop the program that uses this address, or choose"
            advice = stop if error.errno == errno.EADDRINUSE else "Choose"
            raise ListenError(
                f"cannot listen on {address_of(settings)}: {error.strerror or error}. {advice} "
                "another one with --host, --port or --uds."
            ) from error
        # At the end, the path may belong to another server, whose socket must stay.
        inode = settings.uds and settings.uds.stat().st_ino
        try:
            yield listener
        finally:
            if settings.uds is not None:
                with suppress(FileNotFoundError):
                    if settings.uds.stat().st_ino == inode:
                        settings.uds.unlink()


@contextmanager
def reserving(settings: Settings) -> Iterator[socket.socket]:
    """Reserve the port for processes that listen with SO_REUSEPORT.

    First bind it alone: another server with SO_REUSEPORT would silently share it.
    """
    with listening(settings) as alone:
        host, port = alone.getsockname()[:2]
    with socket.socket(alone.family) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, port))
        yield reserved


@contextmanager
def listening_for_metrics(settings: Settings) -> Iterator[list[socket.socket]]:
    """Listen on the port `metrics_port`, if the settings have one."""
    if settings.metrics_port is None:
        yield []
        return
    port = Settings.model_construct(host=settings.host, port=settings.metrics_port, uds=None)
    with listening(port) as listener:
        logger.info("metrics on %s", address_of(port))
        yield [listener]


def _bind(settings: Settings, listener: socket.socket) -> None:
    if settings.uds is None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        limit_unread(listener)
        listener.bind((settings.host, settings.port))
        return
    if settings.uds.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(settings.uds))
            except ConnectionRefusedError:  # its server was killed, or is draining
                settings.uds.unlink(missing_ok=True)
            except BlockingIOError:
                pass  # its server is busy: bind() fails with EADDRINUSE
            except FileNotFoundError:
                pass  # its server has just removed it
    # Set a umask: with chmod(), any user could connect before it.
    mask = os.umask(0o177)
    try:
        listener.bind(str(settings.uds))
    finally:
        os.umask(mask)


def limit_unread(listener: socket.socket) -> None:
    """Limit the unread bytes of each connection that the socket accepts.

    A low net.core.rmem_max would cut the limit down and slow fast connections. On such a host the
    kernel's own limit, net.ipv4.tcp_rmem, stays.
    """
    with socket.socket(listener.family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BYTES)
        is_possible = probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 2 * _UNREAD_BYTES
    if is_possible:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BYTES)


def address_of(settings: Settings, listener: socket.socket | None = None) -> str:
    """Return the address as text, with the port that the listener has picked."""
    if settings.uds is not None:
        return f"unix:{settings.uds}"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1] if listener else settings.port}"
