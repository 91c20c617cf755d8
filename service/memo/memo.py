"""What the service remembers, made once at a time: in memory, and beyond it in a store."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Literal
from weakref import WeakSet

from prometheus_client import Counter

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash_service.memo.address import SqliteAddress, parse_memo_url
from mmhash_service.memo.breaker import Breaker
from mmhash_service.memo.entries import (
    MAX_VALIDATOR,
    MAX_VALUE,
    Fetched,
    Pixels,
    SealedEntry,
    place_of_pixels,
    place_of_url,
)
from mmhash_service.memo.memory import Memory
from mmhash_service.memo.sqlite import Sqlite
from mmhash_service.runtime import metrics
from mmhash_service.settings import Settings

CacheStatus = Literal["hit", "miss"]

# Where an answer came from: `shared` is a call that was at it already.
Source = Literal["memory", "store", "shared", "miss"]


_memos: "WeakSet[Memo]" = WeakSet()

# Tasks of the process that this one was forked from, kept so that nothing logs that they are lost.
_of_parent: list[object] = []


def _abandon_all() -> None:
    for memo in _memos:
        memo.abandon()


os.register_at_fork(after_in_child=_abandon_all)


class Memo:
    """Entries by space: whose they are. What goes wrong with them is a miss."""

    def __init__(self, settings: Settings) -> None:
        self._max_pixels = settings.max_pixels
        self._memory = Memory(settings.memo_bytes)
        self._store = _store_of(settings)
        # Where entries are kept, as /info tells it.
        self.kind = "memory"
        if settings.memo_url is not None:
            self.kind = settings.memo_url.get_secret_value().partition(":")[0]
        self._making: dict[bytes, asyncio.Task[tuple[Pixels, Source]]] = {}
        _memos.add(self)

    async def open(self) -> None:
        """Connect to the store."""
        if self._store is not None:
            await self._store.open()

    async def close(self) -> None:
        """Let go of the store."""
        if self._store is not None:
            await self._store.close()

    def abandon(self) -> None:
        """Begin anew, in a process that was forked; what is in memory is kept."""
        _of_parent.extend(self._making.values())
        self._making = {}
        if self._store is not None:
            self._store.abandon()

    async def pixels(
        self,
        space: bytes,
        algorithm: Algorithm,
        encoded: Digest,
        decode: Callable[[], Awaitable[Pixels]],
    ) -> tuple[Pixels, CacheStatus]:
        """The pixels of the image with that encoded digest, decoded if they are not known.

        Calls for one image at the same time decode it once. Its decoding is a task of its own: a
        caller who goes away takes nothing from the others.
        """
        place = place_of_pixels(space, algorithm, self._max_pixels, encoded)
        value = self._in_memory(place)
        if value is not None and (known := Pixels.unpack(value, algorithm)) is not None:
            _lookups("pixels", "memory").inc()
            return known, "hit"
        making = self._making.get(place.name)
        is_first = making is None
        if making is None:
            making = asyncio.create_task(self._make(place, algorithm, decode))
            self._making[place.name] = making
            making.add_done_callback(lambda made: self._forget(place.name, made))
        pixels, source = await asyncio.shield(making)
        source = source if is_first else "shared"
        _lookups("pixels", source).inc()
        return pixels, "miss" if source == "miss" else "hit"

    async def known_pixels(
        self, space: bytes, algorithm: Algorithm, encoded: Digest
    ) -> Pixels | None:
        """The pixels of that image, if they are known."""
        place = place_of_pixels(space, algorithm, self._max_pixels, encoded)
        value = await self._look_up("pixels", place)
        return None if value is None else Pixels.unpack(value, algorithm)

    async def url(self, space: bytes, url: str, algorithm: Algorithm) -> Fetched | None:
        """What the URL gave, if that is known."""
        value = await self._look_up("url", place_of_url(space, algorithm, url))
        return None if value is None else Fetched.unpack(value, algorithm)

    def keep_url(self, space: bytes, url: str, fetched: Fetched) -> None:
        """Remember what the URL gave, if its server can later be asked whether it still does."""
        validators = [text for text in (fetched.etag, fetched.last_modified) if text]
        if validators and all(len(text.encode()) <= MAX_VALIDATOR for text in validators):
            place = place_of_url(space, fetched.digest.algorithm, url)
            self._keep(place, fetched.pack())

    async def _make(
        self, place: SealedEntry, algorithm: Algorithm, decode: Callable[[], Awaitable[Pixels]]
    ) -> tuple[Pixels, Source]:
        value = await self._in_store(place)
        if value is not None and (known := Pixels.unpack(value, algorithm)) is not None:
            return known, "store"
        pixels = await decode()
        self._keep(place, pixels.pack())
        return pixels, "miss"

    def _forget(self, name: bytes, made: asyncio.Task[tuple[Pixels, Source]]) -> None:
        self._making.pop(name, None)
        if not made.cancelled():
            made.exception()  # looked at, for maybe nobody waited

    async def _look_up(self, kind: str, place: SealedEntry) -> bytes | None:
        source: Source = "memory"
        if (value := self._in_memory(place)) is None:
            value = await self._in_store(place)
            source = "miss" if value is None else "store"
        _lookups(kind, source).inc()
        return value

    def _in_memory(self, place: SealedEntry) -> bytes | None:
        sealed = self._memory.get(place.name)
        return None if sealed is None else place.open(sealed)

    async def _in_store(self, place: SealedEntry) -> bytes | None:
        def open_sealed(sealed: bytes) -> bytes | None:
            value = place.open(sealed)
            if value is not None:
                self._remember(place.name, sealed)
            return value

        return None if self._store is None else await self._store.get(place.name, open_sealed)

    def _keep(self, place: SealedEntry, value: bytes) -> None:
        if len(value) > MAX_VALUE:
            return
        sealed = place.seal(value)
        self._remember(place.name, sealed)
        if self._store is not None:
            self._store.put(place.name, sealed)

    def _remember(self, name: bytes, sealed: bytes) -> None:
        before = self._memory.nbytes
        self._memory.put(name, sealed)
        metrics.MEMO_BYTES.inc(self._memory.nbytes - before)


def _store_of(settings: Settings) -> Breaker | None:
    if settings.memo_url is None:
        return None
    address = parse_memo_url(settings.memo_url.get_secret_value())
    if isinstance(address, SqliteAddress):
        return Breaker(Sqlite(address.path, settings.memo_bytes))
    from mmhash_service.memo.redis import RedisStore  # noqa: PLC0415  (60 ms, for who has one)

    return Breaker(RedisStore(address))


@cache
def _lookups(kind: str, source: Source) -> Counter:
    return metrics.MEMO_LOOKUPS.labels(kind, source)
