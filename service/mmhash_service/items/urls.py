"""Items at URLs of allowed hosts."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.readers import PixelsReader, StreamReader
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


async def hash_url(
    context: RequestContext, url: str, name: str | None = None, *, pixels: bool = False
) -> HashedItem:
    """Fetch and hash the content of an http(s) URL: a file, or the pixels of an image."""
    if pixels:  # the memo finds pixels by the BLAKE3 of the image's file
        (item,) = await read_content(context, url, "blake3", PixelsReader(context, name))
        return item
    (item,) = await read_content(context, url, context.algorithm, StreamReader(context, name))
    return item if item.memo else item._replace(memo="miss")


async def read_url(context: RequestContext, url: str, take: Callable[[bytes], None]) -> None:
    """Pass each piece of a URL's content to `take`, whatever the memo has."""
    async with context.fetcher.get(context.fetcher.allowed(url), None) as remote:
        await remote.read(take)
