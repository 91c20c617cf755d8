"""The identity of this process, and the clean-up of a forked child."""

import os
import weakref
from typing import NamedTuple, Protocol


class Process(NamedTuple):
    """A process: its id, and the number of forks between it and the first process.

    The id is not enough: a grandchild may get the id of a process that has exited.
    """

    pid: int
    forks: int


class ForkAware(Protocol):
    """An object that must change in a forked child before it is used there."""

    def after_fork(self) -> None:
        """Give up the parent's resources; called in the child, which has one thread."""


_forks = 0
_aware: "weakref.WeakSet[ForkAware]" = weakref.WeakSet()


def current_process() -> Process:
    """Return this process; a fork changes the result, even one that Python did not make."""
    return Process(os.getpid(), _forks)


def watch_forks(aware: ForkAware) -> None:
    """Call `aware.after_fork()` in each forked child, for as long as the object exists."""
    _aware.add(aware)


def _after_fork() -> None:
    global _forks  # noqa: PLW0603  (a count of the process)
    _forks += 1
    for aware in list(_aware):
        aware.after_fork()


os.register_at_fork(after_in_child=_after_fork)
