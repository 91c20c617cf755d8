"""The memo: an in-memory cache, an optional store behind it, and one decode per image."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import cache, partial
from threading import Lock
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from prometheus_client import Counter

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash.lru import LruCache
from mmhash.prompts.headers import ImageHeader
from mmhash.prompts.processor.messages import Question
from mmhash_service.memo import entries
from mmhash_service.memo.breaker import Breaker
from mmhash_service.memo.entries import MAX_VALUE, Fetched, Pixels, SealedEntry, pack, unpack
from mmhash_service.memo.stores import create_store, scheme_of
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics, tracing

# Images whose headers are in memory only, and names that engines compute themselves: each takes
# about 0.5 kB.
_MAX_IMAGES = 8192

# Per entry: two bytes objects, and their slots in the dict and its order.
ENTRY_OVERHEAD = 240

CacheStatus = Literal["hit", "miss"]

# The source of an answer; `shared` means the decode of a concurrent request.
Source = Literal["memory", "store", "shared", "miss"]

T = TypeVar("T")

Compute = Callable[[], Awaitable[T]]


class Codec(NamedTuple, Generic[T]):
    """How an object becomes the value of an entry and back; None if the value is malformed."""

    pack: Callable[[T], bytes]
    unpack: Callable[[bytes], T | None]


_PIXELS: Codec[Pixels] = Codec(pack, partial(unpack, Pixels))
_FETCHED: Codec[Fetched] = Codec(pack, partial(unpack, Fetched))
_EXPANSION: Codec[bytes] = Codec(bytes, bytes)
_HEADER: Codec[ImageHeader] = Codec(pack, partial(unpack, ImageHeader))


class Memo:
    """A cache of entries, partitioned by space. Every failure is a miss."""

    def __init__(self, settings: Settings) -> None:
        self._max_pixels = settings.max_pixels
        self._timeout_s = settings.work_timeout_s
        self._cache = LruCache(settings.memo_bytes, entry_size)
        self._store: Breaker | None = None
        # The kind of store, shown by /info.
        self.kind = "memory"
        if settings.memo_url is not None:
            url = settings.memo_url.get_secret_value()
            self._store = Breaker(create_store(url))
            self.kind = scheme_of(url)
        self._running: dict[bytes, _Running] = {}
        self._headers: LruCache[tuple[bytes, bytes], ImageHeader]
        self._headers = LruCache(_MAX_IMAGES, lambda *_: 1)
        self._names: LruCache[tuple[bytes, Hashable], str] = LruCache(_MAX_IMAGES, lambda *_: 1)
        self._names_lock = Lock()  # names are computed in threads

    async def open(self) -> None:
        """Connect to the store."""
        if self._store is not None:
            await self._store.open()

    async def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            await self._store.close()

    async def pixels(
        self,
        space: bytes,
        algorithm: Algorithm,
        encoded: Digest,
        decode: Compute[Pixels],
    ) -> tuple[Pixels, CacheStatus]:
        """Return an image's pixels, given the digest of its file; decode the image on a miss."""
        entry = entries.pixels_entry(space, algorithm, self._max_pixels, encoded)
        return await self._once("pixels", entry, _PIXELS, decode)

    async def known_pixels(
        self, space: bytes, algorithm: Algorithm, encoded: Digest
    ) -> Pixels | None:
        """Return an image's pixels, given the digest of its file, or None."""
        entry = entries.pixels_entry(space, algorithm, self._max_pixels, encoded)
        return await self._look_up("pixels", entry, _PIXELS)

    async def expansion(self, processor: bytes, question: Question, ask: Compute[bytes]) -> bytes:
        """Return a processor's answer; ask the processor on a miss."""
        entry = entries.expansion_entry(processor, question)
        answer, _ = await self._once("expansion", entry, _EXPANSION, ask)
        return answer

    async def url(self, space: bytes, url: str, algorithm: Algorithm) -> Fetched | None:
        """Return what is known about a URL's content, or None."""
        return await self._look_up("url", entries.url_entry(space, algorithm, url), _FETCHED)

    def keep_url(self, space: bytes, url: str, fetched: Fetched) -> None:
        """Store the digest of the content of a URL."""
        self._put(entries.url_entry(space, fetched.digest.algorithm, url), _FETCHED, fetched)

    async def header(self, space: bytes, encoded: Digest) -> ImageHeader | None:
        """Return an image's header, given the digest of its file, or None."""
        return await self._look_up("header", entries.header_entry(space, encoded), _HEADER)

    def keep_header(self, space: bytes, encoded: Digest, header: ImageHeader) -> None:
        """Store the header of an image."""
        self._put(entries.header_entry(space, encoded), _HEADER, header)

    def header_in_memory(self, space: bytes, encoded: Digest) -> ImageHeader | None:
        """Return an image's header if this process has it in memory, or None."""
        header = self._headers.get((space, encoded.bytes))
        _count_lookup("header", "miss" if header is None else "memory")
        return header

    def keep_header_in_memory(self, space: bytes, encoded: Digest, header: ImageHeader) -> None:
        """Store an image's header in memory only: reading it again is cheap."""
        self._headers.put((space, encoded.bytes), header)

    def engine_name(self, encoded: Digest, naming: Hashable) -> str | None:
        """Return the engine's name for an image, given the digest of its file, or None."""
        with self._names_lock:
            return self._names.get((encoded.bytes, naming))

    def keep_engine_name(self, encoded: Digest, naming: Hashable, name: str) -> None:
        """Store the engine's name for an image, in memory only."""
        with self._names_lock:
            self._names.put((encoded.bytes, naming), name)

    async def _once(
        self, kind: str, entry: SealedEntry, codec: Codec[T], compute: Compute[T]
    ) -> tuple[T, CacheStatus]:
        """Return an entry's value, computed once for all concurrent requests.

        The computation is a task of its own. A client that disconnects does not cancel it for
        others, and each request has its full time-out. When no request waits any more, the task
        ends and releases its bytes.
        """
        with tracing.span("memo"):
            value = self._get_from_memory(entry)
            if value is not None and (known := codec.unpack(value)) is not None:
                _count_lookup(kind, "memory")
                return known, "hit"
            running = self._running.get(entry.name)
            is_first = running is None
            if running is None:
                running = self._start(entry.name, self._load_or_compute(entry, codec, compute))
            result, source = await self._wait(entry.name, running)
            source = source if is_first else "shared"
            _count_lookup(kind, source)
            return result, "miss" if source == "miss" else "hit"

    async def _load_or_compute(
        self, entry: SealedEntry, codec: Codec[T], compute: Compute[T]
    ) -> tuple[T, Source]:
        value = await self._get_from_store(entry)
        if value is not None and (known := codec.unpack(value)) is not None:
            return known, "store"
        result = await compute()
        self._put(entry, codec, result)
        return result, "miss"

    def _start(
        self, name: bytes, computation: Coroutine[Any, Any, tuple[Any, Source]]
    ) -> "_Running":
        def end(task: asyncio.Task[tuple[Any, Source]]) -> None:
            self._forget(name, running)
            if not task.cancelled():
                task.exception()  # marks the error as retrieved: perhaps no request waits any more

        running = self._running[name] = _Running(asyncio.create_task(computation))
        running.task.add_done_callback(end)
        return running

    async def _wait(self, name: bytes, running: "_Running") -> tuple[Any, Source]:
        """Return the result of a computation; the last waiting request to leave cancels it."""
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

    async def _look_up(self, kind: str, entry: SealedEntry, codec: Codec[T]) -> T | None:
        source: Source = "memory"
        with tracing.span("memo"):
            if (value := self._get_from_memory(entry)) is None:
                value = await self._get_from_store(entry)
                source = "miss" if value is None else "store"
            _count_lookup(kind, source)
        return None if value is None else codec.unpack(value)

    def _get_from_memory(self, entry: SealedEntry) -> bytes | None:
        sealed = self._cache.get(entry.name)
        return None if sealed is None else entry.open(sealed)

    async def _get_from_store(self, entry: SealedEntry) -> bytes | None:
        sealed = None if self._store is None else await self._store.get(entry.name)
        value = None if sealed is None else entry.open(sealed)
        if sealed is not None and value is not None:
            self._cache.put(entry.name, sealed)
        return value

    def _put(self, entry: SealedEntry, codec: Codec[T], result: T) -> None:
        value = codec.pack(result)
        if len(value) > MAX_VALUE:
            return
        sealed = entry.seal(value)
        self._cache.put(entry.name, sealed)
        if self._store is not None:
            self._store.put(entry.name, sealed)


class _Running:
    """A computation, and how many calls wait for it."""

    def __init__(self, task: asyncio.Task[tuple[Any, Source]]) -> None:
        self.task = task
        self.waiting = 0


def entry_size(name: bytes, sealed: bytes) -> int:
    """Return the memory that an entry takes."""
    return len(name) + len(sealed) + ENTRY_OVERHEAD


def _count_lookup(kind: str, source: Source) -> None:
    _lookups(kind, source).inc()
    tracing.note("mmhash.memo.source", source)


@cache
def _lookups(kind: str, source: Source) -> Counter:
    return metrics.MEMO_LOOKUPS.labels(kind, source)
