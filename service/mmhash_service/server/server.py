"""`serve` runs one process, or a supervisor and its processes."""

import gc
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.context import ForkProcess, SpawnProcess
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Protocol

import uvicorn

from mmhash.errors import InputError
from mmhash.states import use_threads_again
from mmhash_service.http.app import create_app
from mmhash_service.limits.malloc import tune_malloc
from mmhash_service.models import Models
from mmhash_service.resources import Application, Resources
from mmhash_service.server import logs
from mmhash_service.server.check import check_values
from mmhash_service.server.graceful import Server, Supervision
from mmhash_service.server.listening import (
    address_of,
    listening,
    listening_for_metrics,
    reserving,
)
from mmhash_service.server.protocol import BoundedProtocol
from mmhash_service.server.reload import read_again, reload
from mmhash_service.server.supervisor import STOP, supervise
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics
from mmhash_service.telemetry.metrics import MULTIPROC_VARIABLE

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, STOP)


class Create(Protocol):
    """Creates the application, in the process that runs it."""

    def __call__(self, settings: Settings, *, models: Models | None) -> Application:
        """Create the application. Load the models if they are None."""


def serve(settings: Settings, create: Create = create_app, *, binds: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, then finish the running requests.

    SIGHUP reloads the settings and models that server/reload.py names. If `binds`, the application
    listens on the port itself in each process, because gRPC accepts no socket.
    """
    logs.configure()
    # Hold signals back until the server has its handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    check_values(settings)
    _use_all_descriptors()
    # Load the models here, so that an unreadable one fails the start and not each process.
    models = Models(settings.models)
    own = reserving if binds else listening
    with own(settings) as listener, listening_for_metrics(settings) as more:
        listeners = more if binds else [listener, *more]
        count = "1 process" if settings.processes == 1 else f"{settings.processes} processes"
        logger.info("running on %s with %s", address_of(settings, listener), count)
        if binds:
            settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        if settings.processes == 1:
            _run_server(settings, partial(create, settings, models=models), listeners)
        else:
            _run_supervisor(settings, create, models, listeners)
    logger.info("stopped")


def _use_all_descriptors() -> None:
    """Raise the soft limit on descriptors, often 1024, to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS allows less than its hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _handle_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    """Handle the signals from now on, including pending ones."""
    for number in _SIGNALS:
        # nohup ignores SIGHUP, so that the process outlives its terminal.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _run_server(
    settings: Settings,
    create: Callable[[], Application],
    listeners: list[socket.socket],
    supervisor: Supervision | None = None,
) -> None:
    """Run the server of one process."""
    tune_malloc()
    app = create()
    resources = Resources.of_app(app)
    protocol = partial(BoundedProtocol, stall_timeout_s=settings.timeout_s)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=protocol,  # type: ignore[arg-type]  # (uvicorn only calls it)
        ws="none",
        proxy_headers=False,  # nothing reads the client's address
        log_config=None,
        access_log=False,
        server_header=False,
        # The server exits only once it is idle or the grace period is over.
        timeout_graceful_shutdown=1,
    )
    # Modules stay loaded for good. Keep them out of full collections, which block the event loop.
    gc.freeze()
    server = Server(
        config, resources.limits, partial(reload, resources), settings.grace_s, supervisor
    )
    _handle_signals(server.handle_exit)
    server.run(listeners)
    resources.stop_threads()


def _run_process(
    settings: Settings,
    create: Create,
    listeners: list[socket.socket],
    supervisor: Supervision,
    *,
    is_restart: bool,
    models: Models | None = None,
) -> None:
    """Run one process. A fork inherits the models."""
    logs.configure()
    metrics.share()
    if models is not None:
        models.count_as_loaded()
    else:
        # A reload may have broken a model. The others must not be lost with it.
        models = Models({})
        models.reload(settings.models)
    use_threads_again()  # the supervisor hashes nothing
    metrics.PROCESS_RESTARTS.inc(int(is_restart))
    create_here = partial(create, settings, models=models)
    _run_server(settings, create_here, listeners, supervisor)


def _process_type() -> type[BaseProcess]:
    """Return how to start a process: by a fork where that is safe, to share imports and models.

    A lock that another thread holds would stay locked in the fork. The supervisor has one thread,
    unless opentelemetry-instrument has started an exporter.
    """
    is_safe = sys.platform == "linux" and threading.active_count() == 1
    return ForkProcess if is_safe else SpawnProcess


def _run_supervisor(
    settings: Settings, create: Create, models: Models | None, listeners: list[socket.socket]
) -> None:
    """Run the supervisor, whose processes inherit the models until a reload.

    Sharing matters: the tokenizer of a large vocabulary takes over 100 MB.
    """
    launched = 0
    stops: list[int] = []
    reloads: list[int] = []

    def launch(turns: Any) -> BaseProcess:
        nonlocal launched
        launched += 1
        process_type = _process_type()
        options: dict[str, Any] = {"is_restart": launched > settings.processes}
        if process_type is ForkProcess:
            options["models"] = models
        supervisor = Supervision(os.getpid(), turns)
        process = process_type(
            target=_run_process, args=(settings, create, listeners, supervisor), kwargs=options
        )
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until the process has its handlers
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return process

    def reload_for_new_processes() -> None:
        nonlocal settings, models
        models = None  # the running processes load them again, and so do new ones
        with suppress(InputError, OSError):  # each process logs this
            settings = read_again(settings)

    def note(number: int, _frame: FrameType | None) -> None:
        (reloads if number == signal.SIGHUP else stops).append(number)

    with tempfile.TemporaryDirectory(prefix="mmhash-metrics-") as folder:
        os.environ[MULTIPROC_VARIABLE] = folder
        gc.freeze()  # or collections in the processes would write to shared pages
        _handle_signals(note)
        supervise(
            launch,
            settings.processes,
            listeners,
            stops,
            reloads,
            grace_s=settings.grace_s,
            on_reload=reload_for_new_processes,
        )
