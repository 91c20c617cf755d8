"""Items by URL: of an allowed host, or of a file below the root."""

from dataclasses import replace
from math import prod

from mmhash import Digest
from mmhash.view import ITEM_SIZE
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import Item, JsonItem
from mmhash_service.bodies.parsing import parse_dtype
from mmhash_service.bodies.readers import PixelsReader, Reader, StreamReader, recall_pixels
from mmhash_service.fetch.failures import Failed, FetchFailure
from mmhash_service.fetch.local import is_file_url, open_file
from mmhash_service.fetch.remote import Remote
from mmhash_service.fetch.validators import Validator
from mmhash_service.items.bundles import hash_tensor
from mmhash_service.items.shared_memory import check_count
from mmhash_service.memo.entries import Fetched
from mmhash_service.runtime.context import RequestContext

# What is read of a file at once: hashed within 0.2 ms.
_PIECE = 1 << 20

Tensor = tuple[str, tuple[int, ...]]


async def hash_url(call: RequestContext, item: JsonItem, url: str) -> list[Item]:
    """What the URL points to, as the item wants it; a data: URL is none of these."""
    with call.admission.reserve() as admission:
        call = replace(call, admission=admission)
        tensor = _tensor(item)
        is_bundle = item.grids is not None or item.counts is not None
        reader: Reader
        if tensor is not None and is_bundle:
            reader = _BundleReader(call, item, tensor)
        elif item.kind == "image":
            reader = PixelsReader(call, item.name)
        else:
            reader = StreamReader(call, item.name, tensor)
        if not is_bundle and not is_file_url(url):
            return [await _hash_remote(call, item, url, reader, tensor)]
        await read_url(call, url, reader, tensor)
        return await reader.finish()


async def read_url(
    call: RequestContext, url: str, reader: Reader, tensor: Tensor | None = None
) -> None:
    """Hand the reader what the URL points to; the memo is not asked."""
    if is_file_url(url):
        await _read_file(call, url, reader, tensor)
    else:
        async with call.fetcher.get(call.fetcher.allowed(url), None) as remote:
            await _read(remote, reader, tensor)


async def _hash_remote(
    call: RequestContext, item: JsonItem, text: str, reader: Reader, tensor: Tensor | None
) -> Item:
    """The item, without a transfer where its host says that the memo still knows it."""
    url = call.fetcher.allowed(text)
    # Of an image the memo knows the pixels by the digest of its file.
    known = await call.memo.url(
        call.space, str(url), "blake3" if item.kind == "image" else call.algorithm
    )
    recalled = await _recall(call, item, tensor, known) if known is not None else None
    asked = Validator(known.etag, known.last_modified) if known and recalled else None
    async with call.fetcher.get(url, asked) as remote:
        if recalled is not None and remote.unchanged:
            return recalled
        await _read(remote, reader, tensor)
    (found,) = await reader.finish()
    if isinstance(reader, PixelsReader):
        digest = reader.encoded
    else:
        digest = Digest(found.algorithm, bytes.fromhex(found.digest))
        found.memo = "miss"
    if remote.validator is not None:
        call.memo.keep_url(call.space, str(url), Fetched(*remote.validator, remote.count, digest))
    return found


async def _recall(
    call: RequestContext, item: JsonItem, tensor: Tensor | None, known: Fetched
) -> Item | None:
    """The item that the URL gave the last time."""
    if item.kind == "image":
        return await recall_pixels(call, item.name, known.digest)
    if known.nbytes != _length(tensor, known.nbytes):
        return None
    dtype, shape = tensor or ("", ())
    found = call.item(item.name, item.kind, dtype, shape, known.nbytes, known.digest)
    found.memo = "hit"
    return found


async def _read(remote: Remote, reader: Reader, tensor: Tensor | None) -> None:
    if remote.length is not None:
        _check_length(tensor, remote.length)
    await remote.read(reader.take)


async def _read_file(call: RequestContext, url: str, reader: Reader, tensor: Tensor | None) -> None:
    settings = call.settings
    file, nbytes = await call.work.run(open_file, url, settings.file_root, settings.url_max_bytes)
    with file:
        _check_length(tensor, nbytes)
        missing = nbytes
        while missing and (piece := await call.work.run(file.read, min(missing, _PIECE))):
            missing -= len(piece)
            if (waiting := reader.take(piece)) is not None:
                await waiting
    if missing:
        raise Problem("url-failed") from FetchFailure("file", Failed("cut while it was read"))


def _tensor(item: JsonItem) -> Tensor | None:
    if item.dtype is None or item.shape is None:
        return None
    return parse_dtype(item.dtype), tuple(item.shape)


def _length(tensor: Tensor | None, otherwise: int) -> int:
    """How many bytes a tensor has; what is none may have any number."""
    return otherwise if tensor is None else prod(tensor[1]) * ITEM_SIZE[tensor[0]]


def _check_length(tensor: Tensor | None, nbytes: int) -> None:
    """Refuse what is no such tensor before it is read."""
    if nbytes != _length(tensor, nbytes):
        raise Problem("wrong-length")


class _BundleReader:
    """A tensor of several items: held until its last piece, then cut and hashed by a worker."""

    def __init__(self, call: RequestContext, item: JsonItem, tensor: Tensor) -> None:
        check_count(call, item)
        self._call, self._item, self._tensor = call, item, tensor
        self._content = bytearray()

    def take(self, piece: bytes | memoryview, /) -> None:
        """Keep the next piece."""
        self._call.admission.hold(len(piece))
        self._content += piece

    async def finish(self) -> list[Item]:
        """The items, in their order."""
        return await self._call.work.run(
            hash_tensor, self._call, self._item, *self._tensor, self._content
        )
