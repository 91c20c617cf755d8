"""The processes that answer: one or several, from the first call to the last after SIGTERM."""

import gc
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from functools import partial
from multiprocessing.process import BaseProcess
from types import FrameType

import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from mmhash_service import logs
from mmhash_service.app import create_app
from mmhash_service.heap import keep_blocks
from mmhash_service.limits import Limits
from mmhash_service.metrics import MULTIPROC_VARIABLE
from mmhash_service.protocol import BoundedProtocol
from mmhash_service.settings import Settings

logger = logging.getLogger(__name__)

_BACKLOG = 2048
_STOPPING = (signal.SIGTERM, signal.SIGINT)


def serve(settings: Settings) -> None:
    """Answer until SIGTERM or SIGINT, and then finish what has begun."""
    logs.configure()
    with _listen(settings) as listener:
        logger.info("running on %s with %d workers", _address(settings, listener), settings.workers)
        if settings.workers == 1:
            _answer(settings, listener)
        else:
            _supervise(settings, listener)
    if settings.uds is not None:
        settings.uds.unlink(missing_ok=True)
    logger.info("stopped")


def _listen(settings: Settings) -> socket.socket:
    if settings.uds is None:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
    else:
        listener = socket.socket(socket.AF_UNIX)
        if settings.uds.is_socket():  # what a server that was killed left
            settings.uds.unlink()
        # The mode at once: between bind() and chmod() anybody might connect.
        mask = os.umask(0o177)
        try:
            listener.bind(str(settings.uds))
        finally:
            os.umask(mask)
    listener.listen(_BACKLOG)
    return listener


def _address(settings: Settings, listener: socket.socket) -> str:
    if settings.uds is not None:
        return f"unix:{settings.uds}"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1]}"


class Server(uvicorn.Server):
    """Stops in two steps: first no call is taken on, then, when all are answered, it ends."""

    def __init__(self, config: uvicorn.Config, limits: Limits, grace_s: float) -> None:
        super().__init__(config)
        self._limits = limits
        self._grace_s = grace_s
        self._until: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second signal does not wait."""
        if self._until is not None:
            super().handle_exit(sig, frame)
            self._captured_signals.clear()  # uvicorn would send itself the signal again
            return
        self._until = time.monotonic() + self._grace_s
        self._limits.draining = True
        logger.info("draining: %d calls to answer", self._limits.calls)

    async def on_tick(self, counter: int) -> bool:
        """Whether to end, asked ten times a second."""
        if self._until is not None:
            self.should_exit |= self._limits.calls == 0 or time.monotonic() > self._until
        return await super().on_tick(counter)


def _answer(settings: Settings, listener: socket.socket) -> None:
    """What one process does."""
    keep_blocks()
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
    Server(config, app.state.limits, settings.grace_s).run([listener])
    app.state.work.stop()


def _work(settings: Settings, listener: socket.socket) -> None:
    logs.configure()
    _answer(settings, listener)


def _supervise(settings: Settings, listener: socket.socket) -> None:
    """Keep so many processes answering, and stop them all together."""
    context = multiprocessing.get_context("spawn")
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    def start() -> BaseProcess:
        process = context.Process(target=_work, args=(settings, listener))
        process.start()
        return process

    with tempfile.TemporaryDirectory(prefix="mmhash-metrics-") as folder:
        os.environ[MULTIPROC_VARIABLE] = folder
        for number in _STOPPING:
            signal.signal(number, stop)
        processes = [start() for _ in range(settings.workers)]
        while not stopping:
            time.sleep(0.1)
            for index, process in enumerate(processes):
                if not process.is_alive() and not stopping:
                    logger.error("worker %d ended with %s", process.pid, process.exitcode)
                    mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
                    processes[index] = start()
        listener.close()
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
