"""Items that a JSON body names: by their bytes, by a URL, or by a handle to where they lie."""

import asyncio
import base64
import binascii
from io import BytesIO
from math import prod
from typing import NamedTuple

import mmhash
from mmhash.cpu import hash_bytes
from mmhash.errors import InputError
from mmhash.view import ITEM_SIZE
from mmhash_service.call import Call
from mmhash_service.inplace import check_count, check_proof, hash_in_place
from mmhash_service.parsing import parse_dtype
from mmhash_service.problems import Problem
from mmhash_service.readers import hash_pixels
from mmhash_service.schemas import Item, JsonItem, Proof
from mmhash_service.urls import hash_url

# How many images and URLs of one body are decoded or fetched at once.
_AT_ONCE = 8

# How much base64 is decoded at a time: 1 ms, after which the event loop may have the GIL.
_BASE64_STEP = 1 << 20


class _Encoded(NamedTuple):
    """An image at hand whose pixels are wanted."""

    body: BytesIO


class _Elsewhere(NamedTuple):
    """What a URL points to."""

    url: str


async def hash_items(
    call: Call, items: list[JsonItem], proof: Proof | None = None
) -> list[list[Item]]:
    """What each of the items is; a bundle is several.

    What is at hand is hashed by one thread in one go; what must be decoded or fetched, a few at
    a time.
    """
    if len(items) > call.settings.max_items:
        raise Problem("too-many-items")
    results = await call.work.run(_hash_at_hand, call, items, proof)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def finish(number: int, rest: _Encoded | _Elsewhere) -> None:
        async with gate:
            if isinstance(rest, _Encoded):
                results[number] = [await hash_pixels(call, items[number].name, rest.body)]
            else:
                results[number] = await hash_url(call, items[number], rest.url)

    try:
        async with asyncio.TaskGroup() as group:
            for number, found in enumerate(results):
                if not isinstance(found, list):
                    group.create_task(finish(number, found))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    done = [found for found in results if isinstance(found, list)]
    if sum(map(len, done)) > call.settings.max_items:
        raise Problem("too-many-items")
    return done


def _hash_at_hand(
    call: Call, items: list[JsonItem], proof: Proof | None
) -> list[list[Item] | _Encoded | _Elsewhere]:
    if any(item.shm is not None or item.cuda_ipc is not None for item in items):
        check_proof(call, proof)
    return [_hash_item(call, item) for item in items]


def _hash_item(call: Call, item: JsonItem) -> list[Item] | _Encoded | _Elsewhere:
    if [item.data, item.url, item.shm, item.cuda_ipc].count(None) != 3:
        raise Problem("no-content")
    if item.data is None and item.url is None:
        return hash_in_place(call, item)
    is_tensor = (item.dtype is not None, item.shape is not None)
    if is_tensor != (item.kind == "tensor",) * 2:
        raise Problem("incomplete-tensor")
    if item.kind != "tensor" and (item.grids is not None or item.counts is not None):
        raise Problem("invalid-bundle")
    if item.url is not None and not item.url.startswith("data:"):
        return _Elsewhere(item.url)
    content = _from_base64(item.data if item.data is not None else _in_data_url(item.url or ""))
    if item.dtype is not None and item.shape is not None:
        return _hash_tensor(call, item, parse_dtype(item.dtype), tuple(item.shape), content)
    if item.kind == "image":
        return _Encoded(BytesIO(content))
    digest = hash_bytes(memoryview(content), call.algorithm)
    return [call.item(item.name, "bytes", "", (), len(content), digest)]


def _hash_tensor(
    call: Call, item: JsonItem, dtype: str, shape: tuple[int, ...], content: bytearray
) -> list[Item]:
    if len(content) != prod(shape) * ITEM_SIZE[dtype]:
        raise Problem("wrong-length")
    if item.grids is None and item.counts is None:
        digest = hash_bytes(memoryview(content), call.algorithm)
        return [call.item(item.name, "tensor", dtype, shape, len(content), digest)]
    check_count(call, item)
    items = []
    for number, (rows, part) in enumerate(_split(item, dtype, shape, content)):
        digest = hash_bytes(part, call.algorithm)
        items.append(
            call.item(
                item.part_name(number), "tensor", dtype, (rows, *shape[1:]), len(part), digest
            )
        )
    return items


def _split(
    item: JsonItem, dtype: str, shape: tuple[int, ...], content: bytearray
) -> list[tuple[int, memoryview]]:
    """How many rows each item of a bundle has, and its bytes."""
    if not shape:
        raise Problem("invalid-bundle")
    row = prod(shape[1:]) * ITEM_SIZE[dtype]
    try:
        cuts = mmhash.split(_Rows(shape[0]), grids=item.grids, counts=item.counts)
    except InputError as error:
        raise Problem("invalid-bundle") from error
    whole = memoryview(content)
    return [(cut.stop - cut.start, whole[cut.start * row : cut.stop * row]) for cut in cuts]


class _Rows:
    """So many rows, of which a cut is told and not made: numpy has not all of our dtypes."""

    def __init__(self, count: int) -> None:
        self.shape = (count,)

    def __getitem__(self, cuts: tuple[slice]) -> slice:
        return cuts[0]


def _in_data_url(url: str) -> str:
    """The base64 text that a data: URL holds."""
    head, comma, text = url.partition(",")
    if not head.endswith(";base64") or not comma:
        raise Problem("invalid-url")
    return text


def _from_base64(text: str) -> bytearray:
    content = bytearray()
    try:
        for at in range(0, len(text), _BASE64_STEP):
            content += base64.b64decode(text[at : at + _BASE64_STEP], validate=True)
            if len(content) % 3 and at + _BASE64_STEP < len(text):
                raise Problem("invalid-base64")  # padding in the middle
    except (binascii.Error, ValueError) as error:
        raise Problem("invalid-base64") from error
    return content
