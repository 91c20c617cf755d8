"""JSON bodies: read under limits, checked by a model, and `POST /hash`'s items hashed."""

import base64
import binascii
from io import BytesIO
from math import prod
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

import mmhash
from mmhash.cpu import hash_bytes
from mmhash.errors import InputError
from mmhash.view import ITEM_SIZE
from mmhash_service.call import Call
from mmhash_service.inplace import check_count, check_proof, hash_in_place
from mmhash_service.limits import Admission, read_body
from mmhash_service.parsing import parse_dtype, parse_media_type
from mmhash_service.problems import Problem
from mmhash_service.readers import hash_pixels
from mmhash_service.schemas import HashBody, Item, JsonItem
from mmhash_service.settings import Settings

# Long strings cost next to nothing, numbers and names do: with so many the parser holds the GIL,
# and with it the event loop, for 5 ms.
MAX_VALUES = 150_000

# The body, its text in the model, and what the text holds.
_HELD_TIMES = 3

# How much base64 is decoded at a time: 1 ms, after which the event loop may have the GIL.
_BASE64_STEP = 1 << 20

Model = TypeVar("Model", bound=BaseModel)


async def read_json(request: Request, settings: Settings, admission: Admission) -> bytes:
    """The whole body of a call that takes JSON alone."""
    if parse_media_type(request.headers.get("content-type", "")) != ("application", "json"):
        raise Problem("not-json")
    reader = JsonText(settings, admission)
    await read_body(request, settings.max_json_bytes, reader.take, settings.stall_timeout_s)
    return bytes(reader.text)


class JsonText:
    """A JSON body that is held until its last piece."""

    def __init__(self, settings: Settings, admission: Admission) -> None:
        self._max_bytes = settings.max_json_bytes
        self._admission = admission
        self.text = bytearray()

    def take(self, piece: bytes | memoryview, /) -> None:
        """Keep the next piece."""
        if len(self.text) + len(piece) > self._max_bytes:
            raise Problem("json-too-large")
        self._admission.hold(_HELD_TIMES * len(piece))
        self.text += piece


class JsonReader(JsonText):
    """The JSON body of `POST /hash`: held until its last piece, then hashed by a worker."""

    def __init__(self, call: Call) -> None:
        super().__init__(call.settings, call.admission)
        self._call = call

    async def finish(self) -> list[Item]:
        """The items; a bundle has several."""
        return await self._call.work.run(_hash_items, self._call, self.text)


def parse_json(text: bytes | bytearray, model: type[Model]) -> Model:
    """The text as the model has it: for a worker."""
    if text.count(b",") + text.count(b":") + text.count(b"[") > MAX_VALUES:
        raise Problem("json-too-large")
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise Problem("invalid-json") from error


def _hash_items(call: Call, text: bytearray) -> list[Item]:
    body = parse_json(text, HashBody)
    if len(body.items) > call.settings.max_items:
        raise Problem("too-many-items")
    if any(item.shm is not None or item.cuda_ipc is not None for item in body.items):
        check_proof(call, body.proof)
    items = [found for item in body.items for found in _hash_item(call, item)]
    if len(items) > call.settings.max_items:
        raise Problem("too-many-items")
    return items


def _hash_item(call: Call, item: JsonItem) -> list[Item]:
    if [item.data, item.url, item.shm, item.cuda_ipc].count(None) != 3:
        raise Problem("no-content")
    if item.data is None and item.url is None:
        return hash_in_place(call, item)
    is_tensor = (item.dtype is not None, item.shape is not None)
    if is_tensor != (item.kind == "tensor",) * 2:
        raise Problem("incomplete-tensor")
    if item.kind != "tensor" and (item.grids is not None or item.counts is not None):
        raise Problem("invalid-bundle")
    content = _from_base64(item.data if item.data is not None else _in_data_url(item.url or ""))
    if item.dtype is not None and item.shape is not None:
        return _hash_tensor(call, item, parse_dtype(item.dtype), tuple(item.shape), content)
    if item.kind == "image":
        return [hash_pixels(call, item.name, BytesIO(content))]
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
    """The base64 text that a data: URL holds; no other URL is followed."""
    head, comma, text = url.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        raise Problem("url-not-data")
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
