"""The supervisor of the server processes: restarts those that exit or hang, and stops them all.

Each process counts the turns of its event loop in memory that it shares with the supervisor.
"""

import logging
import signal
import socket
import time
from collections.abc import Callable, Sequence
from itertools import count
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawValue
from os import kill
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

logger = logging.getLogger(__name__)

STOP = signal.SIGUSR1
"""Tells a process to drain. A second SIGTERM, which a service manager may send, would end it."""

_TICK_S = 0.1
_TICKS_PER_CHECK = 10  # one check per second

# After this many checks without a turn of its event loop a process has hung. A start may take
# longer, on a busy machine, but nothing blocks an event loop for long. Count checks, not seconds:
# processes that were suspended together with the supervisor (SIGSTOP, a closed laptop) have not
# hung.
_START_CHECKS = 60
_HANG_CHECKS = 10

# After this time a process counts as healthy again, and its next restart is immediate.
_HEALTHY_S = 60.0
_MAX_DELAY_S = 30.0

# How long a process may take to exit after its grace period.
_MARGIN_S = 5.0

Launch = Callable[[Any], BaseProcess]
"""Starts a process, given the shared number in which it counts the turns of its event loop."""


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
    slots = [_Slot(launch) for _ in range(processes)]
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
                    slot.send(signal.SIGHUP)
                if tick % _TICKS_PER_CHECK == 0:
                    slot.check()
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
                slot.send(signal.SIGTERM)
        time.sleep(_TICK_S)
    for slot in slots:
        if slot.runs:
            logger.error("process %d did not stop in time and is killed", slot.pid)


def restart_delay(failures: int) -> float:
    """Return the seconds until a restart: 0, 1, 2, 4 and so on, at most 30."""
    return 0.0 if failures <= 1 else min(2.0 ** min(failures - 2, 10), _MAX_DELAY_S)


class _Slot:
    """Runs one process at a time."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._process: BaseProcess | None = None
        self._turns = RawValue("Q", 0)
        self._start_at = self._started_at = time.monotonic()
        self._failures = 0
        self._seen = self._checks = 0

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
        self._turns.value = self._seen = self._checks = 0
        try:
            self._process = self._launch(self._turns)
        except OSError as error:  # out of memory, processes or descriptors
            reason = error.strerror or type(error).__name__
            logger.warning("cannot start a process: %s; %s", reason, self._schedule())
            return
        self._started_at = time.monotonic()

    def _remove(self, process: BaseProcess) -> None:
        mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
        logger.error(
            "process %d exited with %s; %s", process.pid, process.exitcode, self._schedule()
        )
        process.close()
        self._process = None

    def _schedule(self) -> str:
        self._failures += 1
        delay = restart_delay(self._failures)
        self._start_at = time.monotonic() + delay
        return f"restart in {delay:g} s" if delay else "restart at once"

    def check(self) -> None:
        """Kill the process if its event loop has not turned for too many checks."""
        if not self.runs:
            return
        turns = self._turns.value
        self._checks = 0 if turns != self._seen else self._checks + 1
        self._seen = turns
        if self._checks > (_HANG_CHECKS if turns else _START_CHECKS):
            logger.error(
                "process %d has not answered for %d s and is killed",
                self.pid,
                self._checks * _TICKS_PER_CHECK * _TICK_S,
            )
            self.kill()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it is running."""
        if self.runs and self.pid is not None:
            kill(self.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
