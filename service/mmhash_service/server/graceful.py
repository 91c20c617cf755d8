"""The uvicorn server of one process: drains, reloads, answers its supervisor."""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import uvicorn

from mmhash_service.limits.capacity import Limits
from mmhash_service.server.supervisor import STOP

logger = logging.getLogger(__name__)


# How long a process may take to exit after its grace period, once its supervisor has exited.
_MARGIN_S = 5


class Supervision(NamedTuple):
    """What a process needs to know of its supervisor."""

    pid: int
    turns: Any
    """The number in shared memory in which the process counts the turns of its event loop."""


class Server(uvicorn.Server):
    """A uvicorn server that stops in two steps: it refuses new requests, and exits once idle.

    It stops when its supervisor says so or exits.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        limits: Limits,
        reload: Callable[[], None],
        grace_s: float,
        supervisor: Supervision | None = None,
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._read_again = reload
        # True between the signal and the start of the reload.
        self._must_reload = False
        self._reload: asyncio.Future[None] | None = None
        self._grace_s = grace_s
        self._supervisor = supervisor
        # While draining: when the running requests must have finished.
        self._until: float | None = None
        self._close_listener = False
        self._must_log_drain = False
        self._listeners: list[socket.socket] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        await super().startup(sockets=sockets)
        for listener in sockets or ():
            again = listener.dup()  # uvloop reads from the other one
            again.setblocking(False)
            self._listeners.append(again)
            asyncio.get_running_loop().add_reader(again, self._accept_more, again)

    def _accept_more(self, listener: socket.socket) -> None:
        """Accept one connection for each running request.

        uvloop accepts one in each turn of the event loop. Running requests make the turns long, so
        of many new connections, such as those of probes, the last would wait for seconds.
        """
        tasks = self.server_state.tasks
        for _ in range(len(tasks)):
            try:
                connection, _address = listener.accept()
            except OSError:  # usually no connection waits; uvloop handles any other error
                return
            task = asyncio.create_task(self._take(connection))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(self._create_protocol, connection)

    def _create_protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._listeners.clear()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, then finish as uvicorn does."""
        self._stop_listening()
        await super().shutdown(sockets)

    def _watch(self, supervisor: Supervision) -> None:
        """Show the supervisor that the event loop turns. Drain if the supervisor has exited."""
        supervisor.turns.value += 1
        if os.getppid() != supervisor.pid:
            logger.error("the supervisor has exited: this process exits too")
            self._supervisor = None
            # The next server needs the address now.
            self._close_listener = True
            self.drain()
            signal.alarm(int(self._grace_s) + _MARGIN_S)  # even if the event loop hangs

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Reload on SIGHUP. Drain on any other signal, and stop at once on a second SIGTERM."""
        if sig == signal.SIGHUP:
            self._must_reload = True
            return
        if sig == STOP:
            self.drain()
            return
        if self._until is not None:
            super().handle_exit(sig, frame)
            self._captured_signals.clear()  # uvicorn would raise the signal again
            return
        # Stop listening if other processes can accept new connections.
        self._close_listener = self._supervisor is not None
        self.drain()

    def drain(self) -> None:
        """Refuse new requests, and exit once the running ones are answered."""
        if self._until is None:
            self._until = time.monotonic() + self._grace_s
            self._limits.draining = True
            self._must_log_drain = True  # log later: a signal may interrupt another log line

    async def on_tick(self, counter: int) -> bool:
        """Return True to exit. uvicorn calls this ten times a second."""
        self._limits.report()
        if self._supervisor is not None:
            self._watch(self._supervisor)
        if self._must_reload and (self._reload is None or self._reload.done()):
            self._must_reload = False
            loop = asyncio.get_running_loop()
            self._reload = loop.run_in_executor(None, self._read_again)
        if self._until is not None:
            if self._close_listener:
                self._stop_listening()
                for server in self.servers:
                    server.close()
            if self._must_log_drain:
                self._must_log_drain = False
                logger.info("draining: %d requests are running", self._limits.calls)
            # A long response outlives its call.
            is_idle = self._limits.calls == 0 and self._limits.unread == 0
            self.should_exit |= is_idle or time.monotonic() > self._until
        return await super().on_tick(counter)
