"""Readers turn a body, or a part of one, into items while it arrives."""

from collections.abc import Callable
from io import BytesIO
from typing import Protocol

import numpy as np

import mmhash
from mmhash import Digest
from mmhash.algorithms import ALGORITHM_SPECS, Algorithm
from mmhash.cpu import hash_bytes
from mmhash.errors import InputError
from mmhash_service.bodies.parsing import check_length
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.schema import JsonItem
from mmhash_service.memo.entries import Fetched, Pixels
from mmhash_service.memo.memo import CacheStatus
from mmhash_service.problems.problem import Problem

# BLAKE3 is fastest on pieces that begin and end at a multiple of this. Pieces from a socket do not.
_ALIGNMENT = 64 * 1024


class AlignedHasher:
    """A hasher that buffers what exceeds a multiple of _ALIGNMENT."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        # `mmhash.Hasher` accepts anything, and takes time to find out what each piece is.
        self._state = ALGORITHM_SPECS[algorithm].new_state(1)
        self._remainder = bytearray()
        self.length = 0

    def update(self, piece: bytes | memoryview) -> None:
        """Hash the next piece."""
        self.length += len(piece)
        view = memoryview(piece)
        if self._remainder:
            missing = _ALIGNMENT - len(self._remainder)
            self._remainder += view[:missing]
            view = view[missing:]
            if len(self._remainder) < _ALIGNMENT:
                return
            self._state.update(self._remainder)
            self._remainder = bytearray()
        aligned = len(view) - len(view) % _ALIGNMENT
        if aligned:
            self._state.update(view[:aligned])
        self._remainder += view[aligned:]

    def digest(self) -> Digest:
        """Return the digest of all pieces. Call this last."""
        if self._remainder:
            self._state.update(self._remainder)
        return Digest(self._algorithm, self._state.digest())


Take = Callable[[bytes | memoryview], None]
"""Processes the next piece, whose memory is reused afterwards. This must be quick."""


Tensor = tuple[str, tuple[int, ...]]
"""The dtype and the shape of a tensor."""


class Reader(Protocol):
    """A consumer of the pieces of a body, or of one part."""

    @property
    def take(self) -> Take:
        """Process the next piece."""

    async def finish(self) -> list[HashedItem]:
        """Return the items, after the last piece."""


def refuse_empty(nbytes: int) -> None:
    """Refuse an empty image or clip: all missing files would share one key."""
    if not nbytes:
        raise Problem("damaged-media", reason="the content is empty: does the file exist?")


class StreamReader:
    """Hashes plain bytes or a tensor's elements as they arrive, without holding them."""

    def __init__(
        self,
        context: RequestContext,
        name: str | None,
        tensor: Tensor | None = None,
        *,
        is_media: bool = False,
    ) -> None:
        self._context, self._name, self._tensor = context, name, tensor
        self._is_media = is_media
        self._hasher = AlignedHasher(context.algorithm)
        self.take: Take = self._hasher.update
        # The digest of the content; set by `finish`.
        self.digest: Digest

    async def recall(self, fetched: Fetched, /) -> list[HashedItem] | None:
        """Return the item of content that was fetched before."""
        return [self._item(fetched.nbytes, fetched.digest)._replace(memo="hit")]

    async def finish(self) -> list[HashedItem]:
        """Return the only item."""
        nbytes = self._hasher.length
        if self._is_media:
            refuse_empty(nbytes)
        self.digest = self._hasher.digest()
        if self._tensor is not None:
            check_length(*self._tensor, nbytes)
        return [self._item(nbytes, self.digest)]

    def _item(self, nbytes: int, digest: Digest) -> HashedItem:
        if self._tensor is None:
            return self._context.item(self._name, "bytes", "", (), nbytes, digest)
        dtype, shape = self._tensor
        return self._context.item(self._name, "tensor", dtype, shape, nbytes, digest)


class PixelsReader:
    """Holds an encoded image until it is complete, then decodes it or finds it in the memo."""

    def __init__(self, context: RequestContext, name: str | None) -> None:
        self._context, self._name = context, name
        self._file = BytesIO()
        self._hasher = AlignedHasher("blake3")
        # The digest of the file, by which the memo finds the pixels; set by `finish`.
        self.digest: Digest

    def take(self, piece: bytes | memoryview, /) -> None:
        """Store and hash the next piece. Handing it to a thread would take longer."""
        self._context.admission.hold(len(piece))
        self._file.write(piece)
        self._hasher.update(piece)

    async def recall(self, fetched: Fetched, /) -> list[HashedItem] | None:
        """Return the item of a file that was fetched before, if the memo has its pixels."""
        item = await recall_pixels(self._context, self._name, fetched.digest)
        return None if item is None else [item]

    async def finish(self) -> list[HashedItem]:
        """Return the only item."""
        self.digest = self._hasher.digest()
        refuse_empty(self._hasher.length)
        # getvalue() does not copy. Python complains if a file is collected before its getbuffer().
        body = memoryview(self._file.getvalue())
        return [await hash_pixels(self._context, self._name, body, self.digest)]


async def hash_pixels(
    context: RequestContext, name: str | None, body: memoryview, encoded: Digest
) -> HashedItem:
    """Hash an image by its pixels. `encoded` is the digest of its file, `body`."""

    async def decode() -> Pixels:
        return await context.decoders.decode(body, context.algorithm)

    pixels, status = await context.memo.pixels(context.space, context.algorithm, encoded, decode)
    # Outside decode(): requests that share a decode share its errors, but not this limit.
    if status == "miss":
        context.admission.count_decoded(pixels.nbytes, len(body))
    return _pixels_item(context, name, pixels, status)


async def recall_pixels(
    context: RequestContext, name: str | None, encoded: Digest
) -> HashedItem | None:
    """Return the item of an image by the digest of its file, if the memo has its pixels."""
    pixels = await context.memo.known_pixels(context.space, context.algorithm, encoded)
    return pixels and _pixels_item(context, name, pixels, "hit")


def _pixels_item(
    context: RequestContext, name: str | None, pixels: Pixels, status: CacheStatus
) -> HashedItem:
    frames, nbytes, digest, extra, orientation = pixels
    shape = (frames,)
    return context.item(
        name, "image", "", shape, nbytes, digest, extra=extra, orientation=orientation, memo=status
    )


def hash_tensor(
    context: RequestContext, item: JsonItem, dtype: str, shape: tuple[int, ...], content: bytearray
) -> list[HashedItem]:
    """Hash a tensor, or the items of a bundle. Run this in a thread."""
    check_length(dtype, shape, len(content))
    if item.grids is None and item.counts is None:
        digest = hash_bytes(memoryview(content), context.algorithm)
        return [context.item(item.name, "tensor", dtype, shape, len(content), digest)]
    if not shape:
        raise Problem("invalid-tensor", reason="a bundle must have at least one dimension")
    # As bytes: numpy lacks some dtypes.
    rows = np.frombuffer(content, np.uint8).reshape(shape[0], len(content) // max(1, shape[0]))
    try:
        parts = mmhash.split(rows, grids=item.grids, counts=item.counts)
    except InputError as error:
        raise Problem("invalid-tensor", reason=str(error)) from error
    items = []
    for number, part in enumerate(parts):
        digest = hash_bytes(part.data, context.algorithm)
        part_shape = (len(part), *shape[1:])
        name = item.part_name(number)
        items.append(context.item(name, "tensor", dtype, part_shape, part.nbytes, digest))
    return items
