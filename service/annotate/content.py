"""The hashes of the media's bytes that SGLang's chat requests carry, taken beside the items.

They are no spelling of a key: the engine hashes the bytes itself and refuses a request whose
`content_hash` is another, unless it was told to trust them.
"""

import hashlib
from collections.abc import Awaitable
from dataclasses import replace

from mmhash.engines import sglang
from mmhash_service.annotate.slots import Media
from mmhash_service.api.schemas import Item, JsonItem
from mmhash_service.bodies.readers import PixelsReader, Reader, StreamReader
from mmhash_service.fetch.data import is_data_url
from mmhash_service.items.json_items import content_of, hash_items
from mmhash_service.items.urls import read_url
from mmhash_service.runtime.context import RequestContext


async def hash_with_content(
    call: RequestContext, items: dict[Media, JsonItem]
) -> tuple[dict[Media, Item], dict[Media, str]]:
    """The item and the content hash of each of the media."""
    read: dict[str, str] = {}

    async def hash_remote(call: RequestContext, item: JsonItem, url: str) -> list[Item]:
        with call.admission.reserve() as admission:
            call = replace(call, admission=admission)
            is_image = item.kind == "image"
            reader = _ContentHasher(
                PixelsReader(call, None) if is_image else StreamReader(call, None)
            )
            await read_url(call, url, reader)
            read[url] = reader.content_hash()
            return await reader.finish()

    found = await hash_items(call, list(items.values()), hash_remote)
    hashes = await call.work.run(hash_inline, items)
    hashes |= {media: read[media.url] for media in items if media.url in read}
    return dict(zip(items, (one[0] for one in found), strict=True)), hashes


def hash_inline(items: dict[Media, JsonItem]) -> dict[Media, str]:
    """Return the content hash of each of the media whose bytes are in the request."""
    return {
        media: sglang.content_hash(content_of(item))
        for media, item in items.items()
        if media.url is None or is_data_url(media.url)
    }


class _ContentHasher:
    """A reader that takes the content hash of what it hands on."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sha256 = hashlib.sha256()

    def take(self, piece: bytes | memoryview, /) -> Awaitable[None] | None:
        """Hash the next piece, and hand it on."""
        self._sha256.update(piece)
        return self._reader.take(piece)

    async def finish(self) -> list[Item]:
        """The items of the reader."""
        return await self._reader.finish()

    def content_hash(self) -> str:
        """The hash of all that was taken, as `sglang.content_hash` spells it."""
        return f"sha256:{self._sha256.hexdigest()}"
