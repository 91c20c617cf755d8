"""The sockets that a server listens on."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mmhash.errors import MMHashError
from mmhash_service.settings import Settings

logger = logging.getLogger(__name__)

_BACKLOG = 2048


class ListenError(MMHashError):
    """The server cannot listen on its address."""


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """Listen on the address of the settings; a Unix socket is removed at the end."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family if settings.uds is None else socket.AF_UNIX) as listener:
        try:
            _bind(settings, listener)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {address_of(settings)}: {error.strerror or error}. Stop the "
                "program that uses this address, or choose another one with --host, --port or "
                "--uds."
            ) from error
        # Do not delete the socket of another server that has taken the path meanwhile.
        inode = settings.uds and settings.uds.stat().st_ino
        try:
            yield listener
        finally:
            if settings.uds is not None:
                with suppress(FileNotFoundError):
                    if settings.uds.stat().st_ino == inode:
                        settings.uds.unlink()


@contextmanager
def listening_for_metrics(settings: Settings) -> Iterator[list[socket.socket]]:
    """Listen on the setting `metrics_port`, if it has a value."""
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
        listener.bind((settings.host, settings.port))
        return
    if settings.uds.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(settings.uds))
            except ConnectionRefusedError:  # left by a server that was killed
                settings.uds.unlink()
            except BlockingIOError:
                pass  # a busy server: bind() fails with EADDRINUSE
    # Not chmod(): any user could connect between bind() and chmod().
    mask = os.umask(0o177)
    try:
        listener.bind(str(settings.uds))
    finally:
        os.umask(mask)


def address_of(settings: Settings, listener: socket.socket | None = None) -> str:
    """Return the address as text; that of the listener has the port that was picked."""
    if settings.uds is not None:
        return f"unix:{settings.uds}"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1] if listener else settings.port}"
