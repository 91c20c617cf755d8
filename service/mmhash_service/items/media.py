"""Videos and audio clips under the query's recipe, by source or by decoded frames."""

from fractions import Fraction
from functools import partial
from typing import Any, Literal

import msgspec

from mmhash import Digest
from mmhash.cpu import hash_bytes
from mmhash.errors import InputError, LimitError
from mmhash.framing import frame
from mmhash.media.recipe import (
    AudioIndex,
    AudioRecipe,
    VideoIndex,
    VideoRecipe,
    recipe_key,
    select_audio,
    select_video,
)
from mmhash_service.bodies.parsing import parse_natural
from mmhash_service.decoder.messages import (
    MAX_PARTS,
    Answer,
    AudioIndexed,
    AudioSelection,
    PartsHashed,
    VideoIndexed,
    VideoSelection,
)
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem, MemoStatus
from mmhash_service.items.readers import EncodedReader
from mmhash_service.items.schema import AUDIO_FIELDS, VIDEO_FIELDS, HashQuery
from mmhash_service.memo.memo import Codec, Compute
from mmhash_service.problems.problem import Problem

Modality = Literal["video", "audio"]
Recipe = VideoRecipe | AudioRecipe


def _codec(kind: Any) -> Codec[Answer]:
    """Return the codec for a decoder's result of this kind."""
    decoder = msgspec.msgpack.Decoder(kind)

    def unpack(packed: bytes) -> Answer | None:
        try:
            answer: Answer = decoder.decode(packed)
        except msgspec.DecodeError:
            return None
        return answer

    return Codec(msgspec.msgpack.encode, unpack)


_INDEX = _codec(VideoIndexed | AudioIndexed)
_PARTS = _codec(PartsHashed)


class MediaReader(EncodedReader):
    """A reader of a video or an audio clip, which is held until its container is read."""

    def __init__(self, context: RequestContext, name: str | None, modality: Modality) -> None:
        super().__init__(context, name)
        self._modality: Modality = modality

    async def finish(self) -> list[HashedItem]:
        """Return the only item."""
        self.encoded = self._hasher.digest()
        clip = _Clip(self._context, self._modality, self._body(), self.encoded)
        return [await clip.item(self._name)]


async def hash_media(
    context: RequestContext, name: str | None, modality: Modality, body: memoryview, encoded: Digest
) -> HashedItem:
    """Return the item of a file whose BLAKE3 digest is `encoded`."""
    return await _Clip(context, modality, body, encoded).item(name)


class _Clip:
    """A file, and its entries in the memo."""

    def __init__(
        self, context: RequestContext, modality: Modality, body: memoryview, encoded: Digest
    ) -> None:
        self._context, self._modality, self._body, self._encoded = context, modality, body, encoded

    async def item(self, name: str | None) -> HashedItem:
        """Return the item under the recipe of the query."""
        query = self._context.recipe
        if query is None:
            raise Problem("invalid-recipe", reason="the query has no of=frames")
        index, status = await self._index()
        recipe = await self._context.work.run(select, query, self._modality, index)
        if query.by in {None, "source"}:
            return await self._source_item(name, recipe, index, status)
        parts, status = await self._parts(recipe, index)
        return self._parts_item(name, parts, status)

    async def _source_item(
        self, name: str | None, recipe: Recipe, index: VideoIndex | AudioIndex, status: MemoStatus
    ) -> HashedItem:
        context, body, digest = self._context, self._body, self._encoded
        if context.algorithm != "blake3":
            digest = await context.work.run(hash_bytes, body, context.algorithm)
        file_key = frame("bytes", "", (), digest, tenant=context.tenant_secret)
        key = recipe_key(file_key, recipe)
        shape = _shape(recipe, index)
        return HashedItem(name, self._modality, "", shape, len(body), digest, key, memo=status)

    def _parts_item(self, name: str | None, hashed: PartsHashed, status: MemoStatus) -> HashedItem:
        context = self._context
        secret = context.tenant_secret
        dtype = "uint8" if self._modality == "video" else "float32"
        keys = tuple(
            frame("tensor", dtype, shape, Digest(context.algorithm, raw), tenant=secret)
            for raw, shape in ((part.digest, part.shape) for part in hashed.parts)
        )
        content = b"".join(key.bytes for key in keys)
        digest = hash_bytes(memoryview(content), context.algorithm)
        shape = (len(keys),)
        key = frame("list", "", shape, digest, tenant=secret)
        return HashedItem(
            name, "list", "", shape, len(content), digest, key, memo=status, frames=keys
        )

    async def _index(self) -> tuple[VideoIndex | AudioIndex, MemoStatus]:
        read = partial(self._context.decoders.read_media, self._body, self._modality)
        answer, status = await self._once(b"", _INDEX, read)
        match answer:
            case VideoIndexed(frames, over, under, width, height) if self._modality == "video":
                return VideoIndex(frames, Fraction(over, under), width, height), status
            case AudioIndexed(samples, rate, channels) if self._modality == "audio":
                return AudioIndex(samples, rate, channels), status
        raise Problem("decoder-failed")

    async def _parts(
        self, recipe: Recipe, index: VideoIndex | AudioIndex
    ) -> tuple[PartsHashed, MemoStatus]:
        context = self._context
        selection, pixels = _selection(recipe, index, context.settings.max_pixels)
        canonical = context.algorithm.encode() + recipe.canonical()
        decode = partial(
            context.decoders.read_media,
            self._body,
            self._modality,
            context.algorithm,
            selection,
            pixels,
        )
        answer, status = await self._once(canonical, _PARTS, decode)
        if not isinstance(answer, PartsHashed):
            raise Problem("decoder-failed")
        if status == "miss":
            context.admission.count_decoded(4 * pixels, len(self._body))
        return answer, status

    async def _once(
        self, recipe: bytes, codec: Codec[Answer], decode: Compute[Answer]
    ) -> tuple[Answer, MemoStatus]:
        """Return the memo's answer or a decoder's; concurrent requests share it."""
        context = self._context
        return await context.memo.media(
            context.space, self._modality, self._encoded, recipe, codec, decode
        )


def select(query: HashQuery, modality: Modality, index: VideoIndex | AudioIndex) -> Recipe:
    """Return the recipe that the query asks for, for this source."""
    names, others = VIDEO_FIELDS, AUDIO_FIELDS
    if modality == "audio":
        names, others = others, names
    if wrong := [name for name in others if getattr(query, name) is not None]:
        raise Problem("invalid-recipe", reason=f"{wrong[0]} is not for {modality}")
    options = {name: getattr(query, name) for name in names}
    try:
        if isinstance(index, VideoIndex):
            options["indices"] = _numbers(query.indices, ",")
            size = _numbers(query.size, "x")
            options["size"] = None if size is None else tuple(size)
            return select_video(index, **options)
        options["start"] = options["start"] or 0
        return select_audio(index, **options)
    except (InputError, LimitError) as error:
        raise Problem("invalid-recipe", reason=str(error)) from error


def _numbers(text: str | None, separator: str) -> list[int] | None:
    if text is None:
        return None
    # If there are more numbers than can be decoded, the last part has separators and is not a
    # number.
    numbers = [parse_natural(each) for each in text.split(separator, MAX_PARTS)]
    if None in numbers:
        raise Problem("invalid-recipe")
    return [number for number in numbers if number is not None]


def _shape(recipe: Recipe, index: VideoIndex | AudioIndex) -> tuple[int, ...]:
    """Return frames, height and width, or the source's samples and channels."""
    if isinstance(recipe, VideoRecipe) and isinstance(index, VideoIndex):
        width, height = recipe.size or (index.width, index.height)
        return len(recipe.indices), height, width
    if isinstance(recipe, AudioRecipe):
        return recipe.stop - recipe.start, recipe.channels
    raise Problem("decoder-failed")


def _selection(
    recipe: Recipe, index: VideoIndex | AudioIndex, max_pixels: int
) -> tuple[VideoSelection | AudioSelection, int]:
    """Return the message for a decoder, and how many pixels (or samples) it has to decode."""
    if isinstance(recipe, AudioRecipe):
        return AudioSelection(*recipe[:5]), recipe.stop
    if not isinstance(index, VideoIndex):
        raise Problem("decoder-failed")
    width, height = recipe.size or (index.width, index.height)
    count = len(recipe.indices)
    if count > MAX_PARTS or count * width * height > max_pixels:
        reason = f"{count} frames of {width} x {height} pixels; at most {max_pixels} pixels"
        raise Problem("media-too-large", reason=reason)
    decoded = (recipe.indices[-1] + 1) * index.width * index.height
    return VideoSelection(list(recipe.indices), recipe.size), decoded + count * width * height
