"""The uvicorn server of one process: drains, reloads, and answers its supervisor."""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn

from mmhash_service.limits.capacity import Limits
from mmhash_service.server.supervisor import PING, RELOAD, STOP

logger = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """A uvicorn server that stops in two steps: refuse new requests, then exit once idle.

    A process also answers its supervisor's pings, and stops when the supervisor says so or exits.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        limits: Limits,
        reload: Callable[[], None],
        grace_s: float,
        supervisor: socket.socket | None = None,
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._read_again = reload
        # True from the signal until the reload starts.
        self._must_reload = False
        self._reload: asyncio.Future[None] | None = None
        self._grace_s = grace_s
        self._supervisor = supervisor
        # The deadline of the running requests once the server drains.
        self._until: float | None = None
        self._close_listener = False
        self._must_log_drain = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to read from the supervisor, then to accept connections."""
        if self._supervisor is not None:
            link = self._supervisor
            link.setblocking(False)
            asyncio.get_running_loop().add_reader(link, self._on_supervisor, link)
        await super().startup(sockets=sockets)

    def _on_supervisor(self, link: socket.socket) -> None:
        try:
            messages = link.recv(64)
        except BlockingIOError:
            return
        except ConnectionResetError:
            messages = b""
        if not messages:
            asyncio.get_running_loop().remove_reader(link)
            logger.error("the supervisor has exited: this process exits too")
            # Free the address now, for the next server.
            self._close_listener = True
            self.drain()
        elif STOP in messages:
            self.drain()
        if RELOAD in messages:
            self._must_reload = True
        if PING in messages:
            with suppress(OSError):
                link.send(PING)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain; on SIGHUP, reload; on a second signal, stop at once."""
        if sig == signal.SIGHUP:
            self._must_reload = True
            return
        if self._until is not None:
            super().handle_exit(sig, frame)
            self._captured_signals.clear()  # or uvicorn raises the signal again
            return
        # The other processes accept the connections.
        self._close_listener = self._supervisor is not None
        self.drain()

    def drain(self) -> None:
        """Refuse new requests, and exit when the running requests are answered."""
        if self._until is None:
            self._until = time.monotonic() + self._grace_s
            self._limits.draining = True
            self._must_log_drain = True  # not here: a signal may interrupt another log line

    async def on_tick(self, counter: int) -> bool:
        """Return True to exit; uvicorn calls this ten times a second."""
        self._limits.report()
        if self._must_reload and (self._reload is None or self._reload.done()):
            self._must_reload = False
            loop = asyncio.get_running_loop()
            self._reload = loop.run_in_executor(None, self._read_again)
        if self._until is not None:
            if self._close_listener:
                for server in self.servers:
                    server.close()
            if self._must_log_drain:
                self._must_log_drain = False
                logger.info("draining: %d requests are running", self._limits.calls)
            # Long responses are sent after their calls have ended.
            is_idle = self._limits.calls == 0 and self._limits.unread == 0
            self.should_exit |= is_idle or time.monotonic() > self._until
        return await super().on_tick(counter)
