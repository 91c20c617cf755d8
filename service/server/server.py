"""The server process or processes: start, signals, graceful shutdown."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.context import ForkProcess, SpawnProcess
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from mmhash.errors import MMHashError
from mmhash.states import use_threads_again
from mmhash_service.app import create_app
from mmhash_service.plan.models import Models
from mmhash_service.runtime import metrics
from mmhash_service.runtime.capacity import Limits
from mmhash_service.runtime.metrics import MULTIPROC_VARIABLE
from mmhash_service.server import logs
from mmhash_service.server.hangup import Terminal
from mmhash_service.server.malloc import tune_malloc
from mmhash_service.server.metrics_folder import hold, metrics_folder
from mmhash_service.server.protocol import BoundedProtocol
from mmhash_service.server.reload import ReloadError, read_again, reload
from mmhash_service.server.supervisor import PING, RELOAD, STOP, exit_with_supervisor, supervise
from mmhash_service.settings import Settings

logger = logging.getLogger(__name__)

_BACKLOG = 2048

# Bytes of a connection that the kernel keeps until they are read; it takes twice as much for its
# own records. Without a limit they grow to net.ipv4.tcp_rmem, here 32 MiB, count as the container's
# memory, and have left the processor's cache when they are read: 128 bodies of 20 MiB took 0.69 s
# of CPU per GB instead of 0.57. A smaller buffer slows few connections down: 1 MiB by 10 %.
_UNREAD_BYTES = 4 << 20
_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ListenError(MMHashError):
    """The server cannot listen on its address."""


Create = Callable[[Settings], FastAPI]
"""Creates the application, in the process that runs it."""


def serve(settings: Settings, create: Create = create_app) -> None:
    """Serve until SIGTERM, SIGINT or the end of the terminal, then finish the running requests.

    Another SIGHUP has the settings and models read again that server/reload.py names.
    """
    logs.configure()
    signals, reloads = _catch_signals()
    if settings.workers > 1:
        Models(settings.models)  # a model that cannot be read fails here, and not in each worker
    with _listening(settings) as listener, _listening_for_metrics(settings) as more:
        listeners = [listener, *more]
        count = "1 worker" if settings.workers == 1 else f"{settings.workers} workers"
        logger.info("running on %s with %s", _address(settings, listener), count)
        if settings.workers == 1:
            _run_server(settings, create, listeners, (reloads, signals))
        else:
            _run_supervisor(settings, create, listeners, signals, reloads)
    logger.info("stopped")


def _catch_signals() -> tuple[list[int], list[int]]:
    """Collect signals to stop and to reload in lists, until the server has its own handlers."""
    signals: list[int] = []
    reloads: list[int] = []
    terminal = Terminal()

    def collect(number: int, _frame: FrameType | None) -> None:
        is_reload = number == signal.SIGHUP and not terminal.is_gone
        (reloads if is_reload else signals).append(number)

    for number in _CAUGHT:
        # nohup ignores SIGHUP, so that the process outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, collect)
    return signals, reloads


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family if settings.uds is None else socket.AF_UNIX) as listener:
        try:
            _bind(settings, listener)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {_address(settings)}: {error.strerror or error}. Stop the "
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
def _listening_for_metrics(settings: Settings) -> Iterator[list[socket.socket]]:
    if settings.metrics_port is None:
        yield []
        return
    port = Settings.model_construct(host=settings.host, port=settings.metrics_port, uds=None)
    with _listening(port) as listener:
        logger.info("metrics on %s", _address(port))
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


def limit_unread(listener: socket.socket) -> None:
    """Limit the unread bytes of each connection that the socket accepts.

    A host with a low net.core.rmem_max would set less, too little for fast connections: there the
    kernel's own limit, net.ipv4.tcp_rmem, stays.
    """
    with socket.socket(listener.family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BYTES)
        is_possible = probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 2 * _UNREAD_BYTES
    if is_possible:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BYTES)


def _address(settings: Settings, listener: socket.socket | None = None) -> str:
    if settings.uds is not None:
        return f"unix:{settings.uds}"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1] if listener else settings.port}"


class Server(uvicorn.Server):
    """A uvicorn server with a two-step stop: refuse new requests, then exit when none is running.

    A worker also answers the pings of its supervisor, and stops when the supervisor says so or
    exits.
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
        self._terminal = Terminal()
        # True from the signal until the reload starts.
        self._must_reload = False
        self._reload: asyncio.Future[None] | None = None
        self._grace_s = grace_s
        self._supervisor = supervisor
        # The deadline of the running requests, once the server drains.
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
            logger.error("the supervisor has exited: this worker exits too")
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
        """Drain, or reload on a SIGHUP of a user; stop at once on a second signal."""
        if sig == signal.SIGHUP and not self._terminal.is_gone:
            self._must_reload = True
            return
        if self._until is not None:
            super().handle_exit(sig, frame)
            self._captured_signals.clear()  # or uvicorn raises the signal again
            return
        # The other workers accept the connections.
        self._close_listener = self._supervisor is not None
        self.drain()

    def drain(self) -> None:
        """Refuse new requests, and exit when the running ones are answered."""
        if self._until is None:
            self._until = time.monotonic() + self._grace_s
            self._limits.draining = True
            self._must_log_drain = True  # not here: a signal may interrupt another line of log

    async def on_tick(self, counter: int) -> bool:
        """Return True to exit; uvicorn calls this ten times a second."""
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
            self.should_exit |= self._limits.calls == 0 or time.monotonic() > self._until
        return await super().on_tick(counter)


def _run_server(
    settings: Settings,
    create: Create,
    listeners: list[socket.socket],
    received: tuple[list[int], list[int]],
    supervisor: socket.socket | None = None,
) -> None:
    """Run the server of one process, and handle the signals received before."""
    tune_malloc()
    app = create(settings)
    protocol = partial(BoundedProtocol, stall_timeout_s=settings.stall_timeout_s)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=protocol,  # type: ignore[arg-type]  # (uvicorn only calls it)
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # The grace period has passed already.
        timeout_graceful_shutdown=1,
    )
    # Loaded modules stay for good. Without this, each full collection blocks the event loop for
    # 50 ms.
    gc.freeze()
    server = Server(
        config, app.state.limits, partial(reload, app.state), settings.grace_s, supervisor
    )
    for number in _CAUGHT:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, server.handle_exit)
    for numbers in received:  # while the app was created
        if numbers:
            server.handle_exit(numbers[0], None)
    server.run(listeners)
    app.state.work.stop()
    app.state.prompts.stop()


def _run_worker(
    settings: Settings,
    create: Create,
    listeners: list[socket.socket],
    supervisor: socket.socket,
    *,
    is_restart: bool,
    links: Iterable[socket.socket] = (),
    received: tuple[list[int], list[int]] | None = None,
) -> None:
    """Run one worker process; a forked one has the supervisor's links and received signals."""
    for link in links:
        link.close()
    logs.configure()
    metrics.share()
    use_threads_again()  # the supervisor hashes nothing
    signals, reloads = received or _catch_signals()
    exit_with_supervisor(supervisor, settings.grace_s)
    hold(os.environ[MULTIPROC_VARIABLE])
    metrics.WORKER_RESTARTS.inc(int(is_restart))
    _run_server(settings, create, listeners, (reloads, signals), supervisor)


def _process_type() -> type[BaseProcess]:
    """Return how to start a worker: a fork takes 0.03 s of CPU, a new Python with its imports 1 s.

    At a fork, another thread may hold a lock, which would stay locked in the worker. The supervisor
    has one thread, unless opentelemetry-instrument has started an exporter.
    """
    is_safe = sys.platform == "linux" and threading.active_count() == 1
    return ForkProcess if is_safe else SpawnProcess


def _run_supervisor(
    settings: Settings,
    create: Create,
    listeners: list[socket.socket],
    signals: list[int],
    reloads: list[int],
) -> None:
    """Run the supervisor process."""
    launched = 0

    def launch(link: socket.socket, links: list[socket.socket]) -> BaseProcess:
        nonlocal launched
        launched += 1
        process_type = _process_type()
        options: dict[str, Any] = {"is_restart": launched > settings.workers}
        if process_type is ForkProcess:
            options |= {"links": links, "received": (signals, reloads)}
        process = process_type(
            target=_run_worker, args=(settings, create, listeners, link), kwargs=options
        )
        process.start()
        return process

    def reload_for_new_workers() -> None:
        nonlocal settings
        with suppress(ReloadError):  # each worker logs it
            settings = read_again(settings)

    with metrics_folder() as folder:
        os.environ[MULTIPROC_VARIABLE] = folder
        gc.freeze()  # collections in the workers do not write to what they share
        supervise(
            launch,
            settings.workers,
            listeners,
            signals,
            reloads,
            grace_s=settings.grace_s,
            on_reload=reload_for_new_workers,
        )
