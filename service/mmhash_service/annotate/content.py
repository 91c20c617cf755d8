"""SHA-256 of the media's bytes, for requests that carry it: computed while the items are hashed.

It is not a key: the engine hashes the bytes itself and refuses a request with another hash, unless
it is configured to trust them.
"""

import hashlib
from dataclasses import replace

from mmhash_service.annotate.slots import Media
from mmhash_service.api.schemas.items import JsonItem
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.json_items import content_of, hash_items
from mmhash_service.items.readers import PixelsReader, Reader, StreamReader
from mmhash_service.items.urls import read_url


async def hash_with_content(
    context: RequestContext, items: dict[Media, JsonItem]
) -> tuple[dict[Media, HashedItem], dict[Media, bytes]]:
    """Return the item and the SHA-256 of each of the media."""
    read: dict[str, bytes] = {}

    async def hash_remote(context: RequestContext, item: JsonItem, url: str) -> list[HashedItem]:
        with context.admission.reserve() as admission:
            context = replace(context, admission=admission)
            is_image = item.kind == "image"
            reader = _ContentHasher(
                PixelsReader(context, None)
                if is_image
                else StreamReader(context, None, is_media=True)
            )
            await read_url(context, url, reader.take)
            read[url] = reader.digest()
            return await reader.finish()

    results = await hash_items(context, list(items.values()), hash_remote)
    digests = await context.work.run(sha256_inline, items)
    digests |= {media: read[media.url] for media in items if media.url in read}
    return dict(zip(items, (result[0] for result in results), strict=True)), digests


def sha256_inline(items: dict[Media, JsonItem]) -> dict[Media, bytes]:
    """Return the SHA-256 of each of the media whose bytes are in the request."""
    return {
        media: hashlib.sha256(content_of(item)).digest()
        for media, item in items.items()
        if not media.is_remote
    }


class _ContentHasher:
    """A reader that hashes the bytes that it passes on."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sha256 = hashlib.sha256()

    def take(self, piece: bytes | memoryview, /) -> None:
        """Hash the next piece, and pass it on."""
        self._sha256.update(piece)
        self._reader.take(piece)

    async def finish(self) -> list[HashedItem]:
        """Return the items of the reader."""
        return await self._reader.finish()

    def digest(self) -> bytes:
        """Return the SHA-256 of all bytes so far."""
        return self._sha256.digest()
