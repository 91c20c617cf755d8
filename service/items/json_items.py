"""Items that a JSON body names: by their bytes, by a URL, or by a handle to where they lie."""

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import NamedTuple

from mmhash import Digest
from mmhash.cpu import hash_bytes
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import HashBody, Item, JsonItem, Proof
from mmhash_service.bodies.json_body import JsonText, parse_json
from mmhash_service.bodies.parsing import parse_base64, parse_dtype
from mmhash_service.bodies.readers import hash_pixels
from mmhash_service.fetch.data import is_data_url, read_data_url
from mmhash_service.items.bundles import hash_tensor
from mmhash_service.items.shared_memory import check_proof, hash_shared, nbytes_of
from mmhash_service.items.urls import hash_url
from mmhash_service.runtime.context import RequestContext

# How many images and URLs of one body are decoded or fetched at once.
_AT_ONCE = 8


class EncodedImage(NamedTuple):
    """An image at hand whose pixels are wanted."""

    body: BytesIO
    digest: Digest


class RemoteItem(NamedTuple):
    """What a URL points to."""

    url: str


_Result = list[Item] | EncodedImage | RemoteItem

HashRemote = Callable[[RequestContext, JsonItem, str], Awaitable[list[Item]]]
"""What hashes the content that a URL points to, as the item wants it."""


class JsonReader(JsonText):
    """The JSON body of `POST /hash`: held until its last piece, then its items are hashed."""

    def __init__(self, call: RequestContext) -> None:
        super().__init__(call.settings, call.admission)
        self._call = call

    async def finish(self) -> list[Item]:
        """The items; a bundle has several."""
        items, results = await self._call.work.run(self._begin)
        return [item for found in await _finish(self._call, items, results) for item in found]

    def _begin(self) -> tuple[list[JsonItem], list[_Result]]:
        body = parse_json(self.text, HashBody)
        return body.items, hash_inline(self._call, body.items, body.proof)


async def hash_items(
    call: RequestContext, items: list[JsonItem], hash_remote: HashRemote = hash_url
) -> list[list[Item]]:
    """What each of the items is; a bundle is several."""
    results = await call.work.run(hash_inline, call, items, None)
    return await _finish(call, items, results, hash_remote)


async def _finish(
    call: RequestContext,
    items: list[JsonItem],
    results: list[_Result],
    hash_remote: HashRemote = hash_url,
) -> list[list[Item]]:
    """Decode or fetch, a few at a time, what was not at hand."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def finish(number: int, rest: EncodedImage | RemoteItem) -> None:
        async with gate:
            if isinstance(rest, EncodedImage):
                results[number] = [await hash_pixels(call, items[number].name, *rest)]
            else:
                results[number] = await hash_remote(call, items[number], rest.url)

    try:
        async with asyncio.TaskGroup() as group:
            for number, found in enumerate(results):
                if not isinstance(found, list):
                    group.create_task(finish(number, found))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed.exceptions[0].__cause__
    done = [found for found in results if isinstance(found, list)]
    if sum(map(len, done)) > call.settings.max_items:
        raise Problem("too-many-items")
    return done


def hash_inline(call: RequestContext, items: list[JsonItem], proof: Proof | None) -> list[_Result]:
    """Hash in one go what can be: all but images' pixels and what URLs point to."""
    if len(items) > call.settings.max_items:
        raise Problem("too-many-items")
    if any(item.shm is not None or item.cuda_ipc is not None for item in items):
        check_proof(call, proof)
    in_place = nbytes_of(items)
    return [_hash_item(call, item, in_place) for item in items]


def content_of(item: JsonItem) -> bytearray:
    """The bytes that an item has in its data or in a data: URL."""
    return parse_base64(item.data) if item.data is not None else read_data_url(item.url or "")


def _hash_item(call: RequestContext, item: JsonItem, in_place: int) -> _Result:
    if [item.data, item.url, item.shm, item.cuda_ipc].count(None) != 3:
        raise Problem("no-content")
    if item.data is None and item.url is None:
        return hash_shared(call, item, in_place)
    is_tensor = (item.dtype is not None, item.shape is not None)
    if is_tensor != (item.kind == "tensor",) * 2:
        raise Problem("incomplete-tensor")
    if item.kind != "tensor" and (item.grids is not None or item.counts is not None):
        raise Problem("invalid-bundle")
    if item.url is not None and not is_data_url(item.url):
        return RemoteItem(item.url)
    content = content_of(item)
    if item.dtype is not None and item.shape is not None:
        return hash_tensor(call, item, parse_dtype(item.dtype), tuple(item.shape), content)
    if item.kind == "image":
        return EncodedImage(BytesIO(content), hash_bytes(memoryview(content), "blake3"))
    digest = hash_bytes(memoryview(content), call.algorithm)
    return [call.item(item.name, "bytes", "", (), len(content), digest)]
