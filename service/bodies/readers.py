"""What turns a body, or a part of one, into items while it comes."""

from collections.abc import Awaitable, Callable
from io import BytesIO
from math import prod
from typing import Protocol

from mmhash import Digest
from mmhash.view import ITEM_SIZE
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import Item
from mmhash_service.bodies.stream import BACKGROUND_BYTES, AlignedHasher, BackgroundHasher
from mmhash_service.memo.entries import Pixels
from mmhash_service.memo.memo import CacheStatus
from mmhash_service.runtime.context import RequestContext

Take = Callable[[bytes | memoryview], Awaitable[None] | None]


class Reader(Protocol):
    """Takes pieces as they come, quickly, and says in the end which items they were."""

    @property
    def take(self) -> Take:
        """Take the next piece; what is given back, if anything, is waited for."""

    async def finish(self) -> list[Item]:
        """The items, once the last piece was taken."""


class StreamReader:
    """Plain bytes or a tensor's elements: hashed as they come, and not held."""

    def __init__(
        self,
        call: RequestContext,
        name: str | None,
        tensor: tuple[str, tuple[int, ...]] | None = None,
    ) -> None:
        self._call, self._name, self._tensor = call, name, tensor
        self._stream = AlignedHasher(call.algorithm)
        self.take: Take = self._stream.update
        self._background: BackgroundHasher | None = None

    def hash_in_background(self) -> None:
        """Have a thread hash what has come while more comes."""
        self._call.admission.hold(BACKGROUND_BYTES)
        self._background = BackgroundHasher(self._stream)
        self.take = self._background.take

    async def finish(self) -> list[Item]:
        """The one item."""
        if self._background is not None:
            await self._background.finish()
        nbytes = self._stream.length
        if self._tensor is None:
            item = self._call.item(self._name, "bytes", "", (), nbytes, self._stream.digest())
        else:
            dtype, shape = self._tensor
            if nbytes != prod(shape) * ITEM_SIZE[dtype]:
                raise Problem("wrong-length")
            item = self._call.item(
                self._name, "tensor", dtype, shape, nbytes, self._stream.digest()
            )
        return [item]


class PixelsReader:
    """An encoded image: held until its last piece, then decoded by a process, or remembered."""

    def __init__(self, call: RequestContext, name: str | None) -> None:
        self._call, self._name = call, name
        self._body = BytesIO()
        self._stream = AlignedHasher("blake3")
        # What the body is, once it was taken wholly: the memo knows its pixels by that.
        self.encoded: Digest

    def take(self, piece: bytes | memoryview, /) -> None:
        """Keep the next piece, and hash it: that takes less time than to ask a thread to."""
        self._call.admission.hold(len(piece))
        self._body.write(piece)
        self._stream.update(piece)

    async def finish(self) -> list[Item]:
        """The one item."""
        self.encoded = self._stream.digest()
        return [await hash_pixels(self._call, self._name, self._body, self.encoded)]


async def hash_pixels(
    call: RequestContext, name: str | None, body: BytesIO, encoded: Digest
) -> Item:
    """The item of an encoded image, by its pixels; `encoded` is the blake3 digest of `body`."""

    async def decode() -> Pixels:
        return await call.decoders.decode(body.getbuffer(), call.algorithm)

    pixels, told = await call.memo.pixels(call.space, call.algorithm, encoded, decode)
    return _item(call, name, pixels, told)


async def recall_pixels(call: RequestContext, name: str | None, encoded: Digest) -> Item | None:
    """The item of the image with that digest, if the memo knows it."""
    pixels = await call.memo.known_pixels(call.space, call.algorithm, encoded)
    return pixels and _item(call, name, pixels, "hit")


def _item(call: RequestContext, name: str | None, pixels: Pixels, told: CacheStatus) -> Item:
    frames, nbytes, digest, extra = pixels
    item = call.item(name, "image", "", (frames,), nbytes, digest, extra=extra)
    item.memo = told
    return item
