"""A cache of limited size that evicts the least recently used entries first."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by key. `size_of` says how much of `max_size` an entry takes. Not thread-safe."""

    def __init__(self, max_size: int, size_of: Callable[[K, V], int]) -> None:
        self.max_size = max_size
        self.size = 0
        self._size_of = size_of
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Return the value and mark it as the most recently used, or return None."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Store the value, unless it is larger than the cache."""
        if key in self._entries:
            self.size -= self._size_of(key, self._entries.pop(key))
        size = self._size_of(key, value)
        if size > self.max_size:
            return
        self._entries[key] = value
        self.size += size
        while self.size > self.max_size:
            self.size -= self._size_of(*self._entries.popitem(last=False))

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self.size = 0
