"""Items of a JSON body, with content in the body, at a URL, or in this host's memory."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import mmhash
from mmhash import Digest
from mmhash.cpu import hash_bytes
from mmhash.errors import DeviceError, InputError, TransportError
from mmhash.json_pointer import Path
from mmhash.requests.media_source import decode_base64, decode_data_url, is_data_url
from mmhash.transport import IpcTensor, SharedTensor
from mmhash_service.bodies.json_body import JsonText, parse_json
from mmhash_service.bodies.parsing import parse_dtype, refusing_damage
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.readers import hash_pixels, hash_tensor, refuse_empty
from mmhash_service.items.schema import HashBody, JsonItem
from mmhash_service.items.urls import hash_url
from mmhash_service.limits.threads import run_few
from mmhash_service.problems.problem import Problem, naming


def hash_handle(context: RequestContext, item: JsonItem) -> list[HashedItem]:
    """Hash the items behind a handle. Run this in a thread."""
    if not context.is_local or (item.cuda_ipc is not None and not context.settings.cuda_ipc):
        raise Problem("in-place-off")
    try:
        with _open(item) as feature:
            if (feature.kind, item.dtype, item.shape) != (item.kind, None, None):
                reason = (
                    f"the handle holds a {feature.kind}, its dtype and its shape: give this kind,"
                    " and neither dtype nor shape"
                )
                raise Problem("invalid-handle", reason=reason)
            return [
                context.item(
                    name,
                    part.kind,
                    part.dtype,
                    part.shape,
                    part.nbytes,
                    mmhash.digest(part, algorithm=context.algorithm),
                )
                for name, part in _parts(item, feature)
            ]
    except (TransportError, DeviceError) as error:
        raise Problem("invalid-handle", reason=str(error)) from error


def _open(item: JsonItem) -> SharedTensor | IpcTensor:
    if item.shm is not None:
        return SharedTensor.open(item.shm)
    return IpcTensor.open(item.cuda_ipc, device="producer")


def _parts(item: JsonItem, feature: Any) -> list[tuple[str | None, Any]]:
    if item.grids is None and item.counts is None:
        return [(item.name, feature)]
    try:
        parts = mmhash.split(feature, grids=item.grids, counts=item.counts)
    except InputError as error:
        raise Problem("invalid-tensor", reason=str(error)) from error
    return [(item.part_name(number), part) for number, part in enumerate(parts)]


# How data: URLs of media files begin.
_MEDIA = ("data:image/", "data:video/", "data:audio/")


class Encoded(NamedTuple):
    """An image that must still be decoded."""

    body: memoryview
    digest: Digest


class RemoteItem(NamedTuple):
    """An item that must still be fetched."""

    url: str


_Result = list[HashedItem] | Encoded | RemoteItem


class JsonReader(JsonText):
    """A reader of the JSON body of `POST /hash`, which is hashed once it is complete."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context.settings, context.admission)
        self._context = context

    async def finish(self) -> list[HashedItem]:
        """Return the items in order, those of a bundle one after another."""
        items, results = await self._context.work.run(self._begin)
        hashed = await _finish(self._context, items, results)
        return [item for bundle in hashed for item in bundle]

    def _begin(self) -> tuple[list[JsonItem], list[_Result]]:
        body = parse_json(self.text, HashBody)
        return body.items, hash_inline(self._context, body.items)


async def _finish(
    context: RequestContext,
    items: list[JsonItem],
    results: list[_Result],
) -> list[list[HashedItem]]:
    """Decode images and fetch URLs, a few at a time, and return the items of each entry."""

    async def finish(index: int, pending: Encoded | RemoteItem) -> None:
        item = items[index]
        with naming(path=_path_of(index, item)):
            if isinstance(pending, Encoded):
                hashed = await hash_pixels(context, item.name, pending.body, pending.digest)
            else:
                pixels = item.kind == "image"
                with context.admission.reserve() as admission:
                    reserved = replace(context, admission=admission)
                    hashed = await hash_url(reserved, pending.url, item.name, pixels=pixels)
            results[index] = [hashed]

    await run_few(
        [
            partial(finish, index, result)
            for index, result in enumerate(results)
            if not isinstance(result, list)
        ]
    )
    return [result for result in results if isinstance(result, list)]


def hash_inline(context: RequestContext, items: list[JsonItem]) -> list[_Result]:
    """Hash what needs neither a decoder nor a fetch. Run this in a thread."""
    # Count first: hashing a thousand bundles of a thousand items would exhaust time and memory.
    context.admission.count_items(sum(map(_count_items, items)))
    results = []
    for number, item in enumerate(items):
        with naming(path=_path_of(number, item)):
            results.append(_hash_item(context, item))
    return results


def _path_of(number: int, item: JsonItem) -> Path:
    """Return the place of an item's content in the body, or of the item itself."""
    if item.data is not None:
        return ("items", number, "data")
    return ("items", number, "url") if item.url is not None else ("items", number)


def _count_items(item: JsonItem) -> int:
    """Return how many items an entry of the body stands for. An empty bundle counts as one."""
    if isinstance(item.counts, int):
        return max(1, item.counts)
    return max(1, len(item.counts or ()), len(item.grids or ()))


def _content_of(item: JsonItem) -> bytearray:
    """Return the content of an item with `data` or a data: URL."""
    with refusing_damage():
        return decode_data_url(item.url or "") if item.data is None else decode_base64(item.data)


def _hash_item(context: RequestContext, item: JsonItem) -> _Result:
    contents = ("data", "url", "shm", "cuda_ipc")
    given = [name for name in contents if getattr(item, name) is not None]
    if len(given) != 1:
        reason = (
            f"an item needs exactly one of {', '.join(contents)}, and this has"
            f" {' and '.join(given) or 'none'}"
        )
        raise Problem("invalid-json", reason=reason)
    if item.shm is not None or item.cuda_ipc is not None:
        return hash_handle(context, item)
    _check_fields(item)
    if item.url is not None and not is_data_url(item.url):
        if item.kind == "tensor":
            raise Problem("invalid-tensor", reason="a tensor is sent as data, not fetched by a URL")
        return RemoteItem(item.url)
    return _hash_content(context, item, _content_of(item))


def _check_fields(item: JsonItem) -> None:
    """Refuse a tensor without dtype or shape, and other kinds with fields of a tensor."""
    fields = ("dtype", "shape", "grids", "counts")
    given = [name for name in fields if getattr(item, name) is not None]
    if item.kind != "tensor" and given:
        reason = f"only tensors take {' and '.join(given)}: this item is of kind {item.kind}"
        raise Problem("invalid-tensor", reason=reason)
    if item.kind == "tensor" and given[:2] != ["dtype", "shape"]:
        raise Problem("invalid-tensor", reason="a tensor needs both dtype and shape")


def _hash_content(context: RequestContext, item: JsonItem, content: bytearray) -> _Result:
    if item.dtype is not None and item.shape is not None:
        return hash_tensor(context, item, parse_dtype(item.dtype), tuple(item.shape), content)
    body = memoryview(content)
    if item.kind != "bytes" or (item.url is not None and item.url.lower().startswith(_MEDIA)):
        refuse_empty(len(content))
    if item.kind == "image":
        return Encoded(body, hash_bytes(body, "blake3"))
    digest = hash_bytes(body, context.algorithm)
    return [context.item(item.name, "bytes", "", (), len(content), digest)]
