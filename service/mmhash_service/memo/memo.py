"""The memo: an in-memory cache with an optional store behind it, and one decode per image."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache, partial
from typing import Any, Literal, TypeVar

from prometheus_client import Counter

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash.forks import call_in_child, keep_inherited
from mmhash.prompts.headers import ImageHeader
from mmhash_service.api.problems import Problem
from mmhash_service.memo.breaker import Breaker
from mmhash_service.memo.entries import (
    MAX_VALIDATOR,
    MAX_VALUE,
    Fetched,
    Pixels,
    SealedEntry,
    header_entry,
    media_entry,
    pack_header,
    pixels_entry,
    unpack_header,
    url_entry,
)
from mmhash_service.memo.memory import LruCache
from mmhash_service.memo.stores import create_store, scheme_of
from mmhash_service.runtime import metrics, tracing
from mmhash_service.settings import Settings

CacheStatus = Literal["hit", "miss"]

# The source of an answer; `shared` is the decode of a concurrent request.
Source = Literal["memory", "store", "shared", "miss"]

T = TypeVar("T")

Compute = Callable[[], Awaitable[bytes]]

Unpack = Callable[[bytes], T | None]
"""Returns the object in an entry's value, or None if the value is malformed."""


class Memo:
    """A cache of entries, partitioned by space. Every failure is a miss."""

    def __init__(self, settings: Settings) -> None:
        self._max_pixels = settings.max_pixels
        self._cache = LruCache(settings.memo_bytes)
        self._store: Breaker | None = None
        # The kind of store, shown by /info.
        self.kind = "memory"
        if settings.memo_url is not None:
            url = settings.memo_url.get_secret_value()
            self._store = Breaker(create_store(url, settings.memo_bytes))
            self.kind = scheme_of(url)
        self._running: dict[bytes, _Running] = {}
        call_in_child(self, Memo.abandon)

    async def open(self) -> None:
        """Connect to the store."""
        if self._store is not None:
            await self._store.open()

    async def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            await self._store.close()

    def abandon(self) -> None:
        """Reset after a fork; the entries in memory stay."""
        keep_inherited(*(running.task for running in self._running.values()))
        self._running = {}
        if self._store is not None:
            self._store.abandon()

    async def pixels(
        self,
        space: bytes,
        algorithm: Algorithm,
        encoded: Digest,
        decode: Callable[[], Awaitable[Pixels]],
    ) -> tuple[Pixels, CacheStatus]:
        """Return the pixels of an image by the digest of its file, decoding it on a miss.

        Concurrent requests for one image share one decode; the others count as hits. The decode is
        a task of its own, so that a client that disconnects does not cancel it for the others; when
        nobody waits for it any more, it ends, because no request holds its bytes.
        """
        entry = pixels_entry(space, algorithm, self._max_pixels, encoded)

        async def compute() -> bytes:
            return (await decode()).pack()

        return await self._once(
            "pixels", entry, partial(Pixels.unpack, algorithm=algorithm), compute
        )

    async def _once(
        self, kind: str, entry: SealedEntry, unpack: Unpack[T], compute: Compute
    ) -> tuple[T, CacheStatus]:
        """Return an entry's value, computing it once for all concurrent requests."""
        with tracing.span("memo"):
            value = self._get_from_memory(entry)
            if value is not None and (known := unpack(value)) is not None:
                _count_lookup(kind, "memory")
                return known, "hit"
            running = self._running.get(entry.name)
            is_first = running is None
            if running is None:
                running = self._start(entry.name, self._load_or_compute(entry, unpack, compute))
            result, source = await self._wait(entry.name, running)
            source = source if is_first else "shared"
            _count_lookup(kind, source)
            return result, "miss" if source == "miss" else "hit"

    async def known_pixels(
        self, space: bytes, algorithm: Algorithm, encoded: Digest
    ) -> Pixels | None:
        """Return the pixels of an image by the digest of its file, or None."""
        entry = pixels_entry(space, algorithm, self._max_pixels, encoded)
        return await self._look_up("pixels", entry, partial(Pixels.unpack, algorithm=algorithm))

    async def url(self, space: bytes, url: str, algorithm: Algorithm) -> Fetched | None:
        """Return what is known of the content of a URL, or None."""
        entry = url_entry(space, algorithm, url)
        return await self._look_up("url", entry, partial(Fetched.unpack, algorithm=algorithm))

    def keep_url(self, space: bytes, url: str, fetched: Fetched) -> None:
        """Store the digest of the content of a URL, if it has validators of acceptable length."""
        validators = [text for text in (fetched.etag, fetched.last_modified) if text]
        if validators and all(len(text.encode()) <= MAX_VALIDATOR for text in validators):
            entry = url_entry(space, fetched.digest.algorithm, url)
            self._put(entry, fetched.pack())

    async def header(self, space: bytes, encoded: Digest) -> ImageHeader | None:
        """Return the header of an image by the digest of its file, or None."""
        return await self._look_up("header", header_entry(space, encoded), unpack_header)

    def keep_header(self, space: bytes, encoded: Digest, header: ImageHeader) -> None:
        """Store the header of an image."""
        self._put(header_entry(space, encoded), pack_header(header))

    def header_in_memory(self, space: bytes, encoded: Digest) -> ImageHeader | None:
        """Return the header of an image if it is in the memory of this process, or None."""
        value = self._get_from_memory(header_entry(space, encoded))
        _count_lookup("header", "miss" if value is None else "memory")
        return None if value is None else unpack_header(value)

    def keep_header_in_memory(self, space: bytes, encoded: Digest, header: ImageHeader) -> None:
        """Store the header of an image in memory only: to read it again is cheap."""
        entry = header_entry(space, encoded)
        self._put_in_memory(entry.name, entry.seal(pack_header(header)))

    async def media(  # noqa: PLR0917  (private to bodies.media)
        self,
        space: bytes,
        modality: str,
        encoded: Digest,
        recipe: bytes,
        unpack: Unpack[T],
        decode: Compute,
    ) -> tuple[T, CacheStatus]:
        """Return a decoder's answer for a clip under a recipe, decoding it on a miss as images."""
        entry = media_entry(space, modality, encoded, recipe)
        return await self._once("media", entry, unpack, decode)

    async def _load_or_compute(
        self, entry: SealedEntry, unpack: Unpack[T], compute: Compute
    ) -> tuple[T, Source]:
        value = await self._get_from_store(entry)
        if value is not None and (cached := unpack(value)) is not None:
            return cached, "store"
        packed = await compute()
        result = unpack(packed)
        if result is None:
            raise Problem("decoder-failed")
        self._put(entry, packed)
        return result, "miss"

    def _start(
        self, name: bytes, computation: Coroutine[Any, Any, tuple[Any, Source]]
    ) -> "_Running":
        def end(task: asyncio.Task[tuple[Any, Source]]) -> None:
            self._forget(name, running)
            if not task.cancelled():
                task.exception()  # mark it as retrieved: perhaps no request waits any more

        running = self._running[name] = _Running(asyncio.create_task(computation))
        running.task.add_done_callback(end)
        return running

    async def _wait(self, name: bytes, running: "_Running") -> tuple[Any, Source]:
        """Return the result of a computation; the last one to stop waiting cancels it."""
        running.waiting += 1
        try:
            return await asyncio.shield(running.task)
        finally:
            running.waiting -= 1
            if not running.waiting and not running.task.done():
                self._forget(name, running)
                running.task.cancel()

    def _forget(self, name: bytes, running: "_Running") -> None:
        if self._running.get(name) is running:
            del self._running[name]

    async def _look_up(self, kind: str, entry: SealedEntry, unpack: Unpack[T]) -> T | None:
        """Return an entry's value, or None."""
        source: Source = "memory"
        with tracing.span("memo"):
            if (value := self._get_from_memory(entry)) is None:
                value = await self._get_from_store(entry)
                source = "miss" if value is None else "store"
            _count_lookup(kind, source)
        return None if value is None else unpack(value)

    def _get_from_memory(self, entry: SealedEntry) -> bytes | None:
        sealed = self._cache.get(entry.name)
        return None if sealed is None else entry.open(sealed)

    async def _get_from_store(self, entry: SealedEntry) -> bytes | None:
        def open_sealed(sealed: bytes) -> bytes | None:
            value = entry.open(sealed)
            if value is not None:
                self._put_in_memory(entry.name, sealed)
            return value

        return None if self._store is None else await self._store.get(entry.name, open_sealed)

    def _put(self, entry: SealedEntry, value: bytes) -> None:
        if len(value) > MAX_VALUE:
            return
        sealed = entry.seal(value)
        self._put_in_memory(entry.name, sealed)
        if self._store is not None:
            self._store.put(entry.name, sealed)

    def _put_in_memory(self, name: bytes, sealed: bytes) -> None:
        before = self._cache.nbytes
        self._cache.put(name, sealed)
        metrics.MEMO_BYTES.inc(self._cache.nbytes - before)


class _Running:
    """A computation, and the number of calls that wait for it."""

    def __init__(self, task: asyncio.Task[tuple[Any, Source]]) -> None:
        self.task = task
        self.waiting = 0


def _count_lookup(kind: str, source: Source) -> None:
    _lookups(kind, source).inc()
    tracing.note("mmhash.memo.source", source)


@cache
def _lookups(kind: str, source: Source) -> Counter:
    return metrics.MEMO_LOOKUPS.labels(kind, source)
