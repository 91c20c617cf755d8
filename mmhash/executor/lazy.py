"""A key that is not there yet: the work goes to whoever needs its value first."""

import builtins
import os
import threading
from collections.abc import Callable
from typing import Any

from mmhash.digest import Digest


class LazyKey(Digest):
    """A key that is computed when it is first used, once, by whoever uses it first.

    It is a `Digest` in all else; a pickle or a copy of it is a plain one. Until then it holds its
    item, which must stay as it is.
    """

    __slots__ = ("_compute", "_found", "_lock", "_owner")

    _compute: Callable[[], Digest] | None
    _found: builtins.bytes
    _lock: threading.Lock
    _owner: int

    def __init__(self, compute: Callable[[], Digest]) -> None:
        # A Digest is frozen, so its own way to set a field is closed.
        object.__setattr__(self, "algorithm", "blake3")
        object.__setattr__(self, "_compute", compute)
        self._make_lock()

    def _make_lock(self) -> None:
        object.__setattr__(self, "_lock", threading.Lock())
        object.__setattr__(self, "_owner", os.getpid())

    @property
    def bytes(self) -> builtins.bytes:
        """The key's bytes. An item that cannot be hashed raises here, each time."""
        if self._compute is not None:
            if self._owner != os.getpid():  # a thread may have held the lock when this was forked
                self._make_lock()
            with self._lock:
                if self._compute is not None:
                    object.__setattr__(self, "_found", self._compute().bytes)
                    object.__setattr__(self, "_compute", None)
        return self._found

    def get(self) -> Digest:
        """The key as a plain `Digest`."""
        return Digest(self.algorithm, self.bytes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Digest):
            return NotImplemented
        return (self.algorithm, self.bytes) == (other.algorithm, other.bytes)

    def __hash__(self) -> int:
        return hash(self.get())

    def __repr__(self) -> str:
        return repr(self.get()) if self._compute is None else "LazyKey(not computed yet)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Digest, (self.algorithm, self.bytes)
