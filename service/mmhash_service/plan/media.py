"""The media of a request to plan: the item of each, with its key, and the size of an image."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from mmhash import Digest
from mmhash.cpu import hash_bytes
from mmhash.errors import InputError, LimitError
from mmhash.prompts.headers import ImageHeader, read_size
from mmhash.prompts.media import MediaSource
from mmhash_service.annotate.slots import image_of
from mmhash_service.api.problems import Problem
from mmhash_service.fetch.local import is_file_url
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.json_items import content_of
from mmhash_service.items.readers import hash_pixels, recall_pixels
from mmhash_service.items.remote_content import read_content
from mmhash_service.items.urls import read_url
from mmhash_service.memo.entries import Fetched
from mmhash_service.runtime.concurrency import run_few

# Of the images of a request that is planned on the event loop: 4 Mpixel are 5000 tokens.
_RECALLED_ITEMS = 4
_RECALLED_PIXELS = 1 << 20


class SizedItem(NamedTuple):
    """An item of a request, and its image's header."""

    item: HashedItem
    header: ImageHeader


class _Encoded(NamedTuple):
    """An image whose header is read, but whose pixels are still to be hashed."""

    body: memoryview
    digest: Digest
    header: ImageHeader


class _Remote(NamedTuple):
    """An image that is still to be fetched."""

    url: str


Found = dict[MediaSource, SizedItem | _Encoded | _Remote]
"""The media of a request, read or still to be read."""


async def read_media(
    context: RequestContext, sources: Sequence[MediaSource]
) -> dict[MediaSource, SizedItem]:
    """Return the item of each of the media, and its size; equal ones are read once."""
    return await read_rest(context, await context.work.run(read_inline, context, sources))


async def read_rest(context: RequestContext, found: Found) -> dict[MediaSource, SizedItem]:
    """Decode and fetch what `read_inline` did not read."""
    results = sized_only(found)

    async def finish(source: MediaSource, pending: _Encoded | _Remote) -> None:
        if isinstance(pending, _Encoded):
            results[source] = await _finish(context, pending)
        else:
            with context.admission.reserve() as admission:
                reserved = replace(context, admission=admission)
                results[source] = await _read_remote(reserved, pending.url)

    await run_few(
        [
            partial(finish, source, pending)
            for source, pending in found.items()
            if not isinstance(pending, SizedItem)
        ]
    )
    return results


def sized_only(found: Found) -> dict[MediaSource, SizedItem]:
    """Return the media that are read."""
    return {source: one for source, one in found.items() if isinstance(one, SizedItem)}


def read_inline(context: RequestContext, sources: Sequence[MediaSource]) -> Found:
    """Read the media in the request itself; run this in a worker thread."""
    if len(sources) > context.settings.max_items:
        raise Problem("too-many-items")
    found: Found = {}
    for source in dict.fromkeys(sources):
        if source.modality != "image":
            raise Problem("unplannable-item")
        media = image_of(source.text)
        if media.is_remote:
            found[source] = _Remote(source.text)
        else:
            found[source] = _measure(context, content_of(media.item(pixels=False)))
    return found


def recall_inline(
    context: RequestContext, sources: Sequence[MediaSource]
) -> dict[MediaSource, SizedItem] | None:
    """Read the media in the request itself, up to 4 small images that the memo remembers.

    Return None for others. 0.1 ms for 100 kB: the event loop can do it. The header of a hostile
    image takes 30 ms to read, so it is read in a thread the first time.
    """
    if len(sources) > _RECALLED_ITEMS or context.pixels:
        return None
    found: dict[MediaSource, SizedItem] = {}
    for source in dict.fromkeys(sources):
        media = image_of(source.text)
        if source.modality != "image" or media.is_remote or "%" in source.text:
            return None
        content = content_of(media.item(pixels=False))
        digest = hash_bytes(memoryview(content), context.algorithm)
        header = context.memo.header_in_memory(context.space, digest)
        if header is None or header.width * header.height > _RECALLED_PIXELS:
            return None
        found[source] = _sized(context, content, digest, header)
    return found


def remember(context: RequestContext, found: Found) -> None:
    """Have the memo remember the headers of media in the request itself."""
    for source, one in found.items():
        if isinstance(one, SizedItem) and not image_of(source.text).is_remote:
            context.memo.keep_header_in_memory(context.space, one.item.digest, one.header)


def _measure(context: RequestContext, content: bytearray) -> SizedItem | _Encoded:
    header = _read_header(content)
    body = memoryview(content)
    if context.pixels:
        return _Encoded(body, hash_bytes(body, "blake3"), header)
    digest = hash_bytes(body, context.algorithm)
    return _sized(context, content, digest, header)


def _sized(
    context: RequestContext, content: bytearray, digest: Digest, header: ImageHeader
) -> SizedItem:
    return SizedItem(context.item(None, "bytes", "", (), len(content), digest), header)


def _read_header(content: bytearray) -> ImageHeader:
    try:
        return read_size(content)
    except (InputError, LimitError) as error:
        raise Problem("unplannable-item") from error


async def _finish(context: RequestContext, encoded: _Encoded) -> SizedItem:
    """Hash the pixels; the memo answers first."""
    return SizedItem(await hash_pixels(context, None, encoded.body, encoded.digest), encoded.header)


async def _read_remote(context: RequestContext, text: str) -> SizedItem:
    """Return the image at a URL, from the memo if its host answers 304 Not Modified."""
    image = _RemoteImage(context)
    if is_file_url(text):
        await read_url(context, text, image.take)
        return (await image.measure())[0]
    # The memo stores pixels by the digest of the image's file.
    algorithm = "blake3" if context.pixels else context.algorithm
    return await read_content(context, text, algorithm, image)


class _RemoteImage:
    """The image at a URL, held as a whole: some formats have their orientation after the pixels."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._content = bytearray()

    async def recall(self, fetched: Fetched, /) -> SizedItem | None:
        """Return the image that the URL had at its last fetch, if the memo still has all of it."""
        context, digest = self._context, fetched.digest
        header = await context.memo.header(context.space, digest)
        if header is None:
            return None
        if context.pixels:
            item = await recall_pixels(context, None, digest)
            return None if item is None else SizedItem(item, header)
        item = context.item(None, "bytes", "", (), fetched.nbytes, digest, memo="hit")
        return SizedItem(item, header)

    def expect(self, nbytes: int, /) -> None:
        """Accept any length: the limit of fetches is checked before."""

    def take(self, piece: bytes, /) -> None:
        """Append the next piece."""
        self._context.admission.hold(len(piece))
        self._content += piece

    async def measure(self) -> tuple[SizedItem, Digest]:
        """Return the image, and the digest of its file."""
        measured = await self._context.work.run(_measure, self._context, self._content)
        if isinstance(measured, _Encoded):
            return await _finish(self._context, measured), measured.digest
        item = measured.item._replace(memo="miss")
        return SizedItem(item, measured.header), item.digest

    async def finish(self) -> tuple[SizedItem, Digest]:
        """Return the image, and store its header by its digest."""
        sized, digest = await self.measure()
        self._context.memo.keep_header(self._context.space, digest, sized.header)
        return sized, digest
