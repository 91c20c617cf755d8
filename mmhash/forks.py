"""The identity of this process, and the clean-up in a forked child."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class Process(NamedTuple):
    """A process: its id, and the number of forks between it and the first process.

    The id is not enough: a grandchild may get the id of a process that has exited.
    """

    pid: int
    forks: int


_forks = 0
_actions: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()
_inherited: list[Any] = []


def fork_count() -> int:
    """Return the number of forks between the first process and this one."""
    return _forks


def current_process() -> Process:
    """Return this process; a fork changes the result, even one that Python did not make."""
    return Process(os.getpid(), _forks)


def call_in_child(owner: T, action: Callable[[T], None]) -> None:
    """Call `action(owner)` in each forked child, which has one thread, while `owner` exists."""
    _actions[owner] = action


def keep_inherited(*objects: Any) -> None:
    """In a child, keep objects that only the parent uses from being collected.

    A connection would be closed for the parent too, and asyncio would log each pending task.
    """
    _inherited.extend(objects)


def _after_fork() -> None:
    global _forks  # noqa: PLW0603  (a count of the process)
    _forks += 1
    for owner, action in list(_actions.items()):
        action(owner)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
