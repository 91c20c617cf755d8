"""`serve`: runs one process, or a supervisor and its processes."""

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing.context import ForkProcess, SpawnProcess
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, NamedTuple, Protocol

import uvicorn

from mmhash.errors import InputError
from mmhash.states import use_threads_again
from mmhash_service.http.app import create_app
from mmhash_service.limits.malloc import tune_malloc
from mmhash_service.models import Models
from mmhash_service.resources import Application, Resources
from mmhash_service.server import logs
from mmhash_service.server.check import check_values
from mmhash_service.server.graceful import Server
from mmhash_service.server.listening import (
    address_of,
    listening,
    listening_for_metrics,
    reserving,
)
from mmhash_service.server.metrics_folder import hold, metrics_folder
from mmhash_service.server.protocol import BoundedProtocol
from mmhash_service.server.reload import read_again, reload
from mmhash_service.server.supervisor import exit_with_supervisor, supervise
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics
from mmhash_service.telemetry.metrics import MULTIPROC_VARIABLE

logger = logging.getLogger(__name__)

_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Create(Protocol):
    """Creates the application in the process that runs it."""

    def __call__(self, settings: Settings, *, models: Models | None) -> Application:
        """Create the application; read the models if they are None."""


class _Received(NamedTuple):
    """The signals received before the server has its own handlers."""

    stops: list[int]
    reloads: list[int]


def serve(settings: Settings, create: Create = create_app, *, binds: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, then finish the running requests.

    An application that `binds` listens on the port itself, in each process: gRPC accepts no socket.

    SIGHUP reloads the settings and models that server/reload.py names.
    """
    logs.configure()
    received = _catch_signals()
    check_values(settings)
    # Read here: a model that cannot be read then fails the start, not each process.
    models = Models(settings.models)
    own = reserving if binds else listening
    with own(settings) as listener, listening_for_metrics(settings) as more:
        listeners = more if binds else [listener, *more]
        count = "1 process" if settings.processes == 1 else f"{settings.processes} processes"
        logger.info("running on %s with %s", address_of(settings, listener), count)
        if binds:
            settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        if settings.processes == 1:
            _run_server(settings, partial(create, settings, models=models), listeners, received)
        else:
            _run_supervisor(settings, create, models, listeners, received)
    logger.info("stopped")


def _catch_signals() -> _Received:
    """Collect signals to stop or reload until the server has its own handlers."""
    received = _Received([], [])

    def collect(number: int, _frame: FrameType | None) -> None:
        (received.reloads if number == signal.SIGHUP else received.stops).append(number)

    for number in _CAUGHT:
        # nohup ignores SIGHUP, and so the process outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, collect)
    return received


def _run_server(
    settings: Settings,
    create: Callable[[], Application],
    listeners: list[socket.socket],
    received: _Received,
    supervisor: socket.socket | None = None,
) -> None:
    """Run the server of one process, and handle the signals received before."""
    tune_malloc()
    app = create()
    resources = Resources.of_app(app)
    protocol = partial(BoundedProtocol, stall_timeout_s=settings.stall_timeout_s)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=protocol,  # type: ignore[arg-type]  # (uvicorn only calls it)
        ws="none",
        proxy_headers=False,  # nothing reads the client's address
        log_config=None,
        access_log=False,
        server_header=False,
        # The grace period is over already.
        timeout_graceful_shutdown=1,
    )
    # Loaded modules stay for good. Without this, each full collection would block the event loop.
    gc.freeze()
    server = Server(
        config, resources.limits, partial(reload, resources), settings.grace_s, supervisor
    )
    for number in _CAUGHT:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, server.handle_exit)
    for numbers in (received.reloads, received.stops):  # while the app was being created
        if numbers:
            server.handle_exit(numbers[0], None)
    server.run(listeners)
    resources.stop_threads()
    logs.flush()


def _run_process(
    settings: Settings,
    create: Create,
    listeners: list[socket.socket],
    supervisor: socket.socket,
    *,
    is_restart: bool,
    links: Iterable[socket.socket] = (),
    received: _Received | None = None,
    models: Models | None = None,
) -> None:
    """Run one process; a forked one has the supervisor's links, received signals and models."""
    for link in links:
        link.close()
    logs.configure()
    metrics.share()
    if models is not None:
        models.count_as_loaded()
    use_threads_again()  # the supervisor hashes nothing
    received = received or _catch_signals()
    exit_with_supervisor(supervisor, settings.grace_s)
    hold(os.environ[MULTIPROC_VARIABLE])
    metrics.PROCESS_RESTARTS.inc(int(is_restart))
    create_here = partial(create, settings, models=models)
    _run_server(settings, create_here, listeners, received, supervisor)


def _process_type() -> type[BaseProcess]:
    """Return how to start a process: where safe, by a fork, which shares imports and models.

    In a forked process, a lock held by another thread would stay locked. The supervisor has one
    thread, unless opentelemetry-instrument has started an exporter.
    """
    is_safe = sys.platform == "linux" and threading.active_count() == 1
    return ForkProcess if is_safe else SpawnProcess


def _run_supervisor(
    settings: Settings,
    create: Create,
    models: Models | None,
    listeners: list[socket.socket],
    received: _Received,
) -> None:
    """Run the supervisor process, whose models the processes inherit until a reload.

    Sharing matters: the tokenizer of a large vocabulary takes over 100 MB.
    """
    launched = 0

    def launch(link: socket.socket, links: list[socket.socket]) -> BaseProcess:
        nonlocal launched
        launched += 1
        process_type = _process_type()
        options: dict[str, Any] = {"is_restart": launched > settings.processes}
        if process_type is ForkProcess:
            options |= {"links": links, "received": received, "models": models}
        process = process_type(
            target=_run_process, args=(settings, create, listeners, link), kwargs=options
        )
        process.start()
        return process

    def reload_for_new_processes() -> None:
        nonlocal settings, models
        models = None  # new processes read them, as the running ones now do
        with suppress(InputError, OSError):  # each process logs this
            settings = read_again(settings)

    with metrics_folder() as folder:
        os.environ[MULTIPROC_VARIABLE] = folder
        gc.freeze()  # collections in the processes must not write to shared memory pages
        supervise(
            launch,
            settings.processes,
            listeners,
            received.stops,
            received.reloads,
            grace_s=settings.grace_s,
            on_reload=reload_for_new_processes,
        )
