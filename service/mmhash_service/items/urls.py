"""Items at URLs of allowed hosts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash_service.bodies.parsing import parse_dtype
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.readers import PixelsReader, StreamReader, Tensor, hash_tensor
from mmhash_service.items.schema import JsonItem
from mmhash_service.memo.entries import Fetched

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Target(Protocol[T_co]):
    """What a URL's content is read into."""

    digest: Digest
    """The digest by which the memo finds the content; `finish` sets it."""

    async def recall(self, fetched: Fetched, /) -> T_co | None:
        """Return the result for content of an earlier fetch, if the memo has all of it."""

    def take(self, piece: bytes, /) -> None:
        """Process the next piece."""

    async def finish(self) -> T_co:
        """Return the result, after the last piece."""


async def read_content(
    context: RequestContext, text: str, algorithm: Algorithm, target: Target[T]
) -> T:
    """Read a URL's content into `target`, or recall the result if the content is unchanged."""
    url = context.fetcher.allowed(text)
    entry = await context.memo.url(context.space, str(url), algorithm)
    recalled = None if entry is None else await target.recall(entry)
    etag = None if entry is None or recalled is None else entry.etag
    async with context.fetcher.get(url, etag) as remote:
        if recalled is not None and remote.unchanged:
            return recalled
        await remote.read(target.take)
    result = await target.finish()
    if remote.etag is not None:
        fetched = Fetched(remote.etag, remote.count, target.digest)
        context.memo.keep_url(context.space, str(url), fetched)
    return result


Take = Callable[[bytes], None]


async def hash_url(context: RequestContext, item: JsonItem, url: str) -> list[HashedItem]:
    """Fetch and hash the content of an http(s) URL."""
    with context.admission.reserve() as admission:
        context = replace(context, admission=admission)
        tensor = None
        if item.dtype is not None and item.shape is not None:
            tensor = parse_dtype(item.dtype), tuple(item.shape)
        if tensor is not None and (item.grids is not None or item.counts is not None):
            bundle = _BundleReader(context, item, tensor)
            await read_url(context, url, bundle.take)
            return await bundle.finish()
        if item.kind == "image":  # the memo finds pixels by the BLAKE3 of the image's file
            return await read_content(context, url, "blake3", PixelsReader(context, item.name))
        reader = StreamReader(context, item.name, tensor)
        items = await read_content(context, url, context.algorithm, reader)
        return [one if one.memo else one._replace(memo="miss") for one in items]


async def read_url(context: RequestContext, url: str, take: Take) -> None:
    """Pass each piece of a URL's content to `take`, whatever the memo has."""
    async with context.fetcher.get(context.fetcher.allowed(url), None) as remote:
        await remote.read(take)


class _BundleReader:
    """Holds a bundle, then splits and hashes it in a thread."""

    def __init__(self, context: RequestContext, item: JsonItem, tensor: Tensor) -> None:
        self._context, self._item, self._tensor = context, item, tensor
        self._content = bytearray()

    def take(self, piece: bytes | memoryview, /) -> None:
        """Append the next piece."""
        self._context.admission.hold(len(piece))
        self._content += piece

    async def finish(self) -> list[HashedItem]:
        """Return the items in order."""
        return await self._context.work.run(
            hash_tensor, self._context, self._item, *self._tensor, self._content
        )
