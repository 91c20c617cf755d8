"""What turns a body, or a part of one, into items while it comes."""

from collections.abc import Awaitable, Callable
from io import BytesIO
from math import prod
from typing import Protocol

from mmhash.cpu import hash_bytes
from mmhash.view import ITEM_SIZE
from mmhash_service.call import Call
from mmhash_service.media import read_pixels
from mmhash_service.problems import Problem
from mmhash_service.schemas import Item
from mmhash_service.stream import BESIDE_HELD, Beside, Stream

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
        self, call: Call, name: str | None, tensor: tuple[str, tuple[int, ...]] | None = None
    ) -> None:
        self._call, self._name, self._tensor = call, name, tensor
        self._stream = Stream(call.algorithm)
        self.take: Take = self._stream.update
        self._beside: Beside | None = None

    def hash_beside(self) -> None:
        """Have a thread hash what has come while more comes."""
        self._call.admission.hold(BESIDE_HELD)
        self._beside = Beside(self._stream)
        self.take = self._beside.take

    async def finish(self) -> list[Item]:
        """The one item."""
        if self._beside is not None:
            await self._beside.finish()
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
    """An encoded image: held until its last piece, then decoded by a worker."""

    def __init__(self, call: Call, name: str | None) -> None:
        self._call, self._name = call, name
        self._body = BytesIO()

    def take(self, piece: bytes | memoryview, /) -> None:
        """Keep the next piece."""
        self._call.admission.hold(len(piece))
        self._body.write(piece)

    async def finish(self) -> list[Item]:
        """The one item."""
        return [await hash_pixels(self._call, self._name, self._body)]


async def hash_pixels(call: Call, name: str | None, body: BytesIO) -> Item:
    """The item of an encoded image, by its pixels."""
    return await call.work.run(_decode, call, name, body)


def _decode(call: Call, name: str | None, body: BytesIO) -> Item:
    kind, dtype, shape, _, extra, _ = view = read_pixels(body, call.settings.max_pixels)
    data = view.on_host()
    return call.item(
        name, kind, dtype, shape, len(data), hash_bytes(data, call.algorithm), extra=extra
    )
