"""The supervisor of the server processes: restarts those that exit or hang, and stops them all.

Each process has a socket to the supervisor, on which its event loop answers pings. When the stream
ends, the supervisor has exited, for whatever reason.
"""

import logging
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from multiprocessing.process import BaseProcess
from threading import Thread

from prometheus_client.multiprocess import mark_process_dead

logger = logging.getLogger(__name__)

# The supervisor's messages, one byte each. A process answers a ping with a ping.
PING = b"p"
STOP = b"s"
RELOAD = b"r"

_TICK_S = 0.1
_TICKS_PER_PING = 10  # one ping per second

# After this many unanswered pings a process has hung. A start may take longer, on a busy machine,
# but nothing blocks an event loop for long. Count pings, not seconds: processes that were suspended
# together with the supervisor (SIGSTOP, a closed laptop) have not hung.
_START_PINGS = 60
_HANG_PINGS = 10

# After this time a process counts as healthy again, and its next restart is immediate.
_HEALTHY_S = 60.0
_MAX_DELAY_S = 30.0

# How long a process may take to exit after its grace period.
_MARGIN_S = 5.0

# Starts a process. The arguments are its socket, and the supervisor's ends of all sockets. A fork
# must close its copies of the latter, or the streams would not end with the supervisor.
Launch = Callable[[socket.socket, list[socket.socket]], BaseProcess]


def supervise(
    launch: Launch,
    processes: int,
    listeners: Sequence[socket.socket],
    signals: Sequence[int],
    reloads: list[int],
    *,
    grace_s: float,
    on_reload: Callable[[], None],
) -> None:
    """Keep the processes running until `signals` contains a signal, then stop them.

    A signal in `reloads` calls `on_reload`, and tells the processes to reload. The listeners stay
    open until the end: connections wait in their backlog while a process restarts.
    """
    links: list[socket.socket] = []
    slots = [_Slot(launch, links) for _ in range(processes)]
    try:
        for tick in count():
            if signals:
                break
            reload = bool(reloads)
            reloads.clear()
            if reload:
                on_reload()
            for slot in slots:
                slot.replace()
                if reload:
                    slot.send(RELOAD)
                if tick % _TICKS_PER_PING == 0:
                    slot.ping()
            time.sleep(_TICK_S)
        for listener in listeners:
            listener.close()
        _stop(slots, signals, grace_s)
    finally:
        for slot in slots:
            slot.kill()


def _stop(slots: list["_Slot"], signals: Sequence[int], grace_s: float) -> None:
    for slot in slots:
        slot.send(STOP)
    # Count ticks: time in which all processes are suspended must not count.
    for _ in range(round((grace_s + _MARGIN_S) / _TICK_S)):
        if not any(slot.runs for slot in slots):
            return
        if len(signals) > 1:  # a second signal: stop at once
            for slot in slots:
                slot.terminate()
        time.sleep(_TICK_S)
    for slot in slots:
        if slot.runs:
            logger.error("process %d did not stop in time and is killed", slot.pid)


def restart_delay(failures: int) -> float:
    """Return the seconds until a restart: 0, 1, 2, 4 and so on, at most 30."""
    return 0.0 if failures <= 1 else min(2.0 ** min(failures - 2, 10), _MAX_DELAY_S)


class _Slot:
    """Runs one process at a time."""

    def __init__(self, launch: Launch, links: list[socket.socket]) -> None:
        self._launch = launch
        self._links = links
        self._process: BaseProcess | None = None
        self._link: socket.socket
        self._start_at = self._started_at = time.monotonic()
        self._failures = 0
        self._has_answered = False
        self._unanswered = 0

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.is_alive()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def replace(self) -> None:
        """Start a process if there is none, or remove one that has exited."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._start_at:
                self._start()
        elif not self._process.is_alive():
            self._remove(self._process)
        elif self._failures and now - self._started_at >= _HEALTHY_S:
            logger.info("process %d is healthy after %d failures", self.pid, self._failures)
            self._failures = 0

    def _start(self) -> None:
        link, theirs = socket.socketpair()
        link.setblocking(False)
        self._links.append(link)
        try:
            with theirs:
                self._process = self._launch(theirs, self._links)
        except OSError as error:  # out of memory, processes or descriptors
            self._links.remove(link)
            link.close()
            reason = error.strerror or type(error).__name__
            logger.warning("cannot start a process: %s; %s", reason, self._schedule())
            return
        self._link = link
        self._started_at = time.monotonic()
        self._has_answered = False
        self._unanswered = 0

    def _remove(self, process: BaseProcess) -> None:
        mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
        logger.error(
            "process %d exited with %s; %s", process.pid, process.exitcode, self._schedule()
        )
        self._links.remove(self._link)
        self._link.close()
        process.close()
        self._process = None

    def _schedule(self) -> str:
        self._failures += 1
        delay = restart_delay(self._failures)
        self._start_at = time.monotonic() + delay
        return f"restart in {delay:g} s" if delay else "restart at once"

    def ping(self) -> None:
        """Send a ping. Kill the process if it has left too many of them unanswered."""
        if not self.runs:
            return
        try:
            self._has_answered |= bool(self._link.recv(64))
            self._unanswered = 0
        except OSError:  # mostly BlockingIOError: no answer yet
            self._unanswered += 1
        if self._unanswered > (_HANG_PINGS if self._has_answered else _START_PINGS):
            logger.error(
                "process %d has not answered for %d s and is killed",
                self.pid,
                self._unanswered * _TICKS_PER_PING * _TICK_S,
            )
            self.kill()
        self.send(PING)

    def send(self, message: bytes) -> None:
        """Send a message to the process, if it is running."""
        if self.runs:
            with suppress(OSError):
                self._link.send(message)

    def terminate(self) -> None:
        if self.runs and self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


def exit_with_supervisor(link: socket.socket, grace_s: float) -> None:
    """Exit some time after the supervisor, even if the event loop hangs.

    A running event loop sees the end of the stream itself, and drains.
    """

    def watch() -> None:
        hangup = select.poll()
        hangup.register(link, 0)
        hangup.poll()
        time.sleep(grace_s + _MARGIN_S)
        os._exit(1)

    Thread(target=watch, name="mmhash-supervisor", daemon=True).start()
