"""The memo: a cache in memory, an optional store behind it, and one decode per image."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import cache
from threading import Lock
from typing import Any, Literal, TypeVar

from prometheus_client import Counter

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash.lru import LruCache
from mmhash.prompts.headers import ImageHeader
from mmhash.prompts.processor.messages import Question
from mmhash_service.memo import entries
from mmhash_service.memo.breaker import Breaker
from mmhash_service.memo.entries import MAX_VALUE, Entry, Fetched, Pixels
from mmhash_service.memo.redis import find_store
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics, tracing

# The memory that the cache of a process may take.
_MAX_BYTES = 64 << 20

# How many headers are kept, and how many names. Each takes about 0.5 kB.
_MAX_IMAGES = 8192

# What an entry takes beside its bytes: two bytes objects, and their slots in the cache.
ENTRY_OVERHEAD = 240

CacheStatus = Literal["hit", "miss"]

# Where an answer comes from. `shared` is the work of a concurrent request.
Source = Literal["memory", "store", "shared", "miss"]

T = TypeVar("T")

Compute = Callable[[], Awaitable[T]]


class Memo:
    """A cache whose every failure is a miss. Entries of one space are invisible in others."""

    def __init__(self, settings: Settings) -> None:
        self._max_pixels = settings.max_pixels
        self._timeout_s = settings.timeout_s
        self._cache = LruCache(_MAX_BYTES, entry_size)
        store = find_store(settings)
        self._store = None if store is None else Breaker(store)
        self.kind = "memory" if store is None else store.scheme
        """The scheme of the store's URL, for /info."""
        self._running: dict[bytes, _Running] = {}
        self._headers: LruCache[tuple[bytes, bytes], ImageHeader]
        self._headers = LruCache(_MAX_IMAGES, lambda *_: 1)
        self._names: LruCache[tuple[bytes, Hashable], str] = LruCache(_MAX_IMAGES, lambda *_: 1)
        self._images_lock = Lock()  # media in a request are read in threads

    async def open(self) -> None:
        """Connect to the store, if there is one."""
        if self._store is not None:
            await self._store.open()

    async def close(self) -> None:
        """Close the store, if there is one."""
        if self._store is not None:
            await self._store.close()

    async def pixels(
        self,
        space: bytes,
        algorithm: Algorithm,
        encoded: Digest,
        decode: Compute[Pixels],
    ) -> tuple[Pixels, CacheStatus]:
        """Return an image's pixels by the digest of its file. Decode the image on a miss."""
        entry = entries.pixels_entry(space, algorithm, self._max_pixels, encoded)
        return await self._once(entry, decode)

    async def known_pixels(
        self, space: bytes, algorithm: Algorithm, encoded: Digest
    ) -> Pixels | None:
        """Return an image's pixels by the digest of its file, or None."""
        entry = entries.pixels_entry(space, algorithm, self._max_pixels, encoded)
        return await self._look_up(entry)

    async def expansion(self, processor: bytes, question: Question, ask: Compute[bytes]) -> bytes:
        """Return a processor's answer, and ask the processor on a miss."""
        entry = entries.expansion_entry(processor, question)
        answer, _ = await self._once(entry, ask)
        return answer

    async def url(self, space: bytes, url: str, algorithm: Algorithm) -> Fetched | None:
        """Return the content that a URL had at its last fetch, or None."""
        return await self._look_up(entries.url_entry(space, algorithm, url))

    def keep_url(self, space: bytes, url: str, fetched: Fetched) -> None:
        """Store the digest of a URL's content."""
        self._put(entries.url_entry(space, fetched.digest.algorithm, url), fetched)

    def header(self, space: bytes, encoded: Digest) -> ImageHeader | None:
        """Return an image's header by the digest of its file, or None."""
        with self._images_lock:
            header = self._headers.get((space, encoded.bytes))
        if header is not None:
            _count_lookup("header", "memory")
        return header

    def keep_header(self, space: bytes, encoded: Digest, header: ImageHeader) -> None:
        """Keep a header that had to be read, in memory only: reading it again is cheap."""
        _count_lookup("header", "miss")
        with self._images_lock:
            self._headers.put((space, encoded.bytes), header)

    def engine_name(self, encoded: Digest, naming: Hashable) -> str | None:
        """Return an engine's own name for an image by the digest of its file, or None."""
        with self._images_lock:
            return self._names.get((encoded.bytes, naming))

    def keep_engine_name(self, encoded: Digest, naming: Hashable, name: str) -> None:
        """Keep an engine's own name for an image, in memory only."""
        with self._images_lock:
            self._names.put((encoded.bytes, naming), name)

    async def _once(self, entry: Entry[T], compute: Compute[T]) -> tuple[T, CacheStatus]:
        """Return an entry's value, computed once for all concurrent requests.

        The computation is a task of its own. A client that disconnects does not cancel it for
        others, and each request has its full time-out. When no request waits any more, the task
        ends and releases its bytes.
        """
        with tracing.span("memo"):
            packed = self._cache.get(entry.name)
            if packed is not None and (known := entry.unpack(packed)) is not None:
                _count_lookup(entry.label, "memory")
                return known, "hit"
            running = self._running.get(entry.name)
            is_first = running is None
            if running is None:
                running = self._start(entry.name, self._load_or_compute(entry, compute))
            result, source = await self._wait(entry.name, running)
            source = source if is_first else "shared"
            _count_lookup(entry.label, source)
            return result, "miss" if source == "miss" else "hit"

    async def _load_or_compute(self, entry: Entry[T], compute: Compute[T]) -> tuple[T, Source]:
        packed = await self._load(entry)
        if packed is not None and (known := entry.unpack(packed)) is not None:
            return known, "store"
        result = await compute()
        self._put(entry, result)
        return result, "miss"

    def _start(
        self, name: bytes, computation: Coroutine[Any, Any, tuple[Any, Source]]
    ) -> "_Running":
        def end(task: asyncio.Task[tuple[Any, Source]]) -> None:
            self._forget(name, running)
            if not task.cancelled():
                task.exception()  # or asyncio logs an error that no request is left to raise

        running = self._running[name] = _Running(asyncio.create_task(computation))
        running.task.add_done_callback(end)
        return running

    async def _wait(self, name: bytes, running: "_Running") -> tuple[Any, Source]:
        """Wait for a computation. The last request that stops waiting cancels it."""
        running.waiting += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(running.task)
        except TimeoutError:
            raise Problem("too-slow") from None
        finally:
            running.waiting -= 1
            if not running.waiting and not running.task.done():
                self._forget(name, running)
                running.task.cancel()

    def _forget(self, name: bytes, running: "_Running") -> None:
        if self._running.get(name) is running:
            del self._running[name]

    async def _look_up(self, entry: Entry[T]) -> T | None:
        source: Source = "memory"
        with tracing.span("memo"):
            if (packed := self._cache.get(entry.name)) is None:
                packed = await self._load(entry)
                source = "miss" if packed is None else "store"
            _count_lookup(entry.label, source)
        return None if packed is None else entry.unpack(packed)

    async def _load(self, entry: Entry[Any]) -> bytes | None:
        """Return an entry's packed value from the store, and keep it in memory."""
        sealed = None if self._store is None else await self._store.get(entry.name)
        packed = None if sealed is None else entry.open(sealed)
        if packed is not None:
            self._cache.put(entry.name, packed)
        return packed

    def _put(self, entry: Entry[T], value: T) -> None:
        packed = entry.pack(value)
        if len(packed) > MAX_VALUE:
            return
        self._cache.put(entry.name, packed)
        if self._store is not None:
            self._store.put(entry.name, entry.seal(packed))


class _Running:
    """A computation, and how many requests wait for it."""

    def __init__(self, task: asyncio.Task[tuple[Any, Source]]) -> None:
        self.task = task
        self.waiting = 0


def entry_size(name: bytes, packed: bytes) -> int:
    """Return the memory that an entry takes."""
    return len(name) + len(packed) + ENTRY_OVERHEAD


def _count_lookup(kind: str, source: Source) -> None:
    _lookups(kind, source).inc()
    tracing.note("mmhash.memo.source", source)


@cache
def _lookups(kind: str, source: Source) -> Counter:
    return metrics.MEMO_LOOKUPS.labels(kind, source)
