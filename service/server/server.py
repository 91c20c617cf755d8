"""The processes that answer: one or several, from the first call to the last after a signal."""

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.process import BaseProcess
from types import FrameType

import uvicorn

from mmhash.errors import MMHashError
from mmhash_service.app import create_app
from mmhash_service.runtime.capacity import Limits
from mmhash_service.runtime.metrics import MULTIPROC_VARIABLE
from mmhash_service.server import logs
from mmhash_service.server.malloc import tune_malloc
from mmhash_service.server.protocol import BoundedProtocol
from mmhash_service.server.supervisor import PING, STOP, exit_with_supervisor, supervise
from mmhash_service.settings import Settings

logger = logging.getLogger(__name__)

_BACKLOG = 2048
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ListenError(MMHashError):
    """The address cannot be listened on."""


def serve(settings: Settings) -> None:
    """Answer until SIGTERM, SIGINT or SIGHUP, and then finish what has begun."""
    logs.configure()
    signals = _catch_signals()
    with _listening(settings) as listener:
        logger.info("running on %s with %d workers", _address(settings, listener), settings.workers)
        if settings.workers == 1:
            _answer(settings, listener, signals)
        else:
            _supervise(settings, listener, signals)
    logger.info("stopped")


def _catch_signals() -> list[int]:
    """Have signals to stop noted in a list, until somebody else handles them."""
    signals: list[int] = []
    for number in _STOPPING:
        # nohup has SIGHUP ignored, so that the process outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: signals.append(number))
    return signals


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family if settings.uds is None else socket.AF_UNIX) as listener:
        try:
            _bind(settings, listener)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {_address(settings)}: {error.strerror or error}. Stop what uses "
                "that address, or choose another one by --host, --port or --uds."
            ) from error
        # The next server may have taken the path meanwhile: its file is not ours to delete.
        inode = settings.uds and settings.uds.stat().st_ino
        try:
            yield listener
        finally:
            if settings.uds is not None:
                with suppress(FileNotFoundError):
                    if settings.uds.stat().st_ino == inode:
                        settings.uds.unlink()


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
            except ConnectionRefusedError:  # what a server that was killed left
                settings.uds.unlink()
            except BlockingIOError:
                pass  # a server that is busy: bind() says that the address is in use
    # The mode at once: between bind() and chmod() anybody might connect.
    mask = os.umask(0o177)
    try:
        listener.bind(str(settings.uds))
    finally:
        os.umask(mask)


def _address(settings: Settings, listener: socket.socket | None = None) -> str:
    if settings.uds is not None:
        return f"unix:{settings.uds}"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1] if listener else settings.port}"


class Server(uvicorn.Server):
    """Stops in two steps: first no call is taken on, then, when all are answered, it ends.

    With a supervisor it answers that one's pings, and stops when it says so or has exited.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        limits: Limits,
        grace_s: float,
        supervisor: socket.socket | None = None,
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._grace_s = grace_s
        self._supervisor = supervisor
        self._until: float | None = None
        self._leaves_address = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen to the supervisor, and then to clients."""
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
            # At once, for the next server.
            self._leaves_address = True
            self.drain()
        elif STOP in messages:
            self.drain()
        if PING in messages:
            with suppress(OSError):
                link.send(PING)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second signal does not wait."""
        if self._until is not None:
            super().handle_exit(sig, frame)
            self._captured_signals.clear()  # uvicorn would send itself the signal again
            return
        # The other workers take what comes.
        self._leaves_address = self._supervisor is not None
        self.drain()

    def drain(self) -> None:
        """Take on no more calls, and end when those that have begun are answered."""
        if self._until is None:
            self._until = time.monotonic() + self._grace_s
            self._limits.draining = True
            logger.info("draining: %d calls to answer", self._limits.calls)

    async def on_tick(self, counter: int) -> bool:
        """Whether to end, asked ten times a second."""
        if self._until is not None:
            if self._leaves_address:
                for server in self.servers:
                    server.close()
            self.should_exit |= self._limits.calls == 0 or time.monotonic() > self._until
        return await super().on_tick(counter)


def _answer(
    settings: Settings,
    listener: socket.socket,
    signals: list[int],
    supervisor: socket.socket | None = None,
) -> None:
    """What one process does."""
    tune_malloc()
    app = create_app(settings)
    protocol = partial(BoundedProtocol, stall_timeout_s=settings.stall_timeout_s)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=protocol,  # type: ignore[arg-type]  # (it is only called)
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # By then each call has had its grace.
        timeout_graceful_shutdown=1,
    )
    # What is loaded by now stays. To walk it, full collections would stop the loop for 50 ms each.
    gc.freeze()
    server = Server(config, app.state.limits, settings.grace_s, supervisor)
    for number in _STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, server.handle_exit)
    if signals:  # it came while the app was made
        server.handle_exit(signals[0], None)
    server.run([listener])
    app.state.work.stop()


def _work(settings: Settings, listener: socket.socket, supervisor: socket.socket) -> None:
    """What a worker does."""
    logs.configure()
    signals = _catch_signals()
    exit_with_supervisor(supervisor, settings.grace_s)
    _answer(settings, listener, signals, supervisor)


def _supervise(settings: Settings, listener: socket.socket, signals: list[int]) -> None:
    """What the supervisor does."""
    context = multiprocessing.get_context("spawn")

    def launch(link: socket.socket) -> BaseProcess:
        process = context.Process(target=_work, args=(settings, listener, link))
        process.start()
        return process

    with tempfile.TemporaryDirectory(prefix="mmhash-metrics-") as folder:
        os.environ[MULTIPROC_VARIABLE] = folder
        supervise(launch, settings.workers, listener, signals, settings.grace_s)
