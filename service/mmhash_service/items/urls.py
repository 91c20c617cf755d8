"""Items at URLs of allowed hosts."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Protocol, TypeVar

from blake3 import blake3

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash.dtypes import ITEM_SIZE
from mmhash_service.bodies.parsing import parse_dtype
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.readers import PixelsReader, StreamReader, hash_tensor, recall_pixels
from mmhash_service.items.schema import JsonItem
from mmhash_service.memo.entries import Fetched

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Target(Protocol[T_co]):
    """What content is read into."""

    async def recall(self, fetched: Fetched, /) -> T_co | None:
        """Return the result for content of an earlier fetch, if the memo has all of it."""

    def take(self, piece: bytes, /) -> None:
        """Process the next piece."""

    async def finish(self) -> tuple[T_co, Digest]:
        """Return the result, and the digest by which the memo finds the content."""


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
    result, digest = await target.finish()
    if remote.etag is not None:
        fetched = Fetched(remote.etag, remote.count, digest)
        context.memo.keep_url(context.space, str(url), fetched)
    return result


# With this context, no content has the digest of a URL.
URL_CONTEXT = "mmhash 2026-11-22 url v1"

Take = Callable[[bytes], None]

Tensor = tuple[str, tuple[int, ...]]
"""The dtype and the shape of a tensor."""


async def hash_url(context: RequestContext, item: JsonItem, url: str) -> list[HashedItem]:
    """Fetch and hash the content of an http(s) URL."""
    with context.admission.reserve() as admission:
        context = replace(context, admission=admission)
        tensor = _tensor(item)
        reader = _open_reader(context, item, tensor)
        if not isinstance(reader, _BundleReader):
            # The memo stores pixels under the digest of the image's file.
            algorithm = "blake3" if item.kind == "image" else context.algorithm
            target = _UrlItem(context, item, reader, tensor)
            return [await read_content(context, url, algorithm, target)]
        await read_url(context, url, reader.take)
        return await reader.finish()


async def key_by_url(context: RequestContext, item: JsonItem, url: str) -> list[HashedItem]:
    """Key an item by its URL instead of its content. This fetches nothing."""
    digest = Digest("blake3", blake3(url.encode(), derive_key_context=URL_CONTEXT).digest())
    return [context.item(item.name, "bytes", "", (), 0, digest)]


async def read_url(context: RequestContext, url: str, take: Take) -> None:
    """Pass each piece of a URL's content to `take`, whatever the memo has."""
    async with context.fetcher.get(context.fetcher.allowed(url), None) as remote:
        await remote.read(take)


class _UrlItem:
    """The target of an item's content."""

    def __init__(
        self,
        context: RequestContext,
        item: JsonItem,
        reader: PixelsReader | StreamReader,
        tensor: Tensor | None,
    ) -> None:
        self._context, self._item, self._reader, self._tensor = context, item, reader, tensor
        self.take = reader.take

    async def recall(self, fetched: Fetched, /) -> HashedItem | None:
        """Return the item of the last fetch, if the memo still has it."""
        context, item = self._context, self._item
        if item.kind == "image":
            return await recall_pixels(context, item.name, fetched.digest)
        if not _fits(self._tensor, fetched.nbytes):
            return None
        dtype, shape = self._tensor or ("", ())
        return context.item(
            item.name,
            "bytes" if self._tensor is None else "tensor",
            dtype,
            shape,
            fetched.nbytes,
            fetched.digest,
            memo="hit",
        )

    async def finish(self) -> tuple[HashedItem, Digest]:
        """Return the item, and the digest by which the memo finds the content."""
        (result,) = await self._reader.finish()
        if isinstance(self._reader, PixelsReader):
            return result, self._reader.encoded
        return result._replace(memo="miss"), result.digest


def _open_reader(
    context: RequestContext, item: JsonItem, tensor: Tensor | None
) -> "_BundleReader | PixelsReader | StreamReader":
    if tensor is not None and (item.grids is not None or item.counts is not None):
        return _BundleReader(context, item, tensor)
    if item.kind == "image":
        return PixelsReader(context, item.name)
    return StreamReader(context, item.name, tensor)


def _tensor(item: JsonItem) -> Tensor | None:
    if item.dtype is None or item.shape is None:
        return None
    return parse_dtype(item.dtype), tuple(item.shape)


def _fits(tensor: Tensor | None, nbytes: int) -> bool:
    """Return True if the length is that of the tensor, or there is no tensor."""
    return tensor is None or nbytes == prod(tensor[1]) * ITEM_SIZE[tensor[0]]


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
