"""A key that is computed on first use."""

import builtins
import threading
from collections.abc import Callable
from typing import Any

from mmhash.digest import Digest


class LazyKey(Digest):
    """A `Digest` that is computed once, in the thread that first uses it.

    A pickle or a copy of it is a plain `Digest`. It holds its item until it is computed; the item
    must not change until then.
    """

    __slots__ = ("_compute", "_digest", "_lock")

    _compute: Callable[[], Digest] | None
    _digest: builtins.bytes
    _lock: threading.Lock

    def __init__(self, compute: Callable[[], Digest]) -> None:
        # A Digest is frozen: its own __setattr__ refuses.
        object.__setattr__(self, "algorithm", "blake3")
        object.__setattr__(self, "_compute", compute)
        object.__setattr__(self, "_lock", threading.Lock())

    @property
    def bytes(self) -> builtins.bytes:
        """The key's bytes, computed on first use. An invalid item raises its error at each use."""
        if self._compute is not None:
            with self._lock:
                if self._compute is not None:
                    object.__setattr__(self, "_digest", self._compute().bytes)
                    object.__setattr__(self, "_compute", None)
        return self._digest

    def get(self) -> Digest:
        """Return the key as a plain `Digest`."""
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
