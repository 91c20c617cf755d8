"""Read the media of a request. Each is hashed once, whatever the number of engines."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from mmhash import Digest
from mmhash.cpu import hash_bytes
from mmhash.digest import Algorithm
from mmhash.errors import InputError, LimitError
from mmhash.prompts.headers import ImageHeader, read_size
from mmhash.prompts.headers.wav import read_samples
from mmhash.prompts.names import FileNaming
from mmhash.requests import MediaSource
from mmhash_service.bodies.parsing import refusing_damage
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.readers import (
    PixelsReader,
    StreamReader,
    hash_pixels,
    recall_pixels,
    refuse_empty,
)
from mmhash_service.items.urls import hash_url, read_content, read_url
from mmhash_service.limits.capacity import MAX_ITEMS
from mmhash_service.limits.threads import run_few
from mmhash_service.memo.entries import Fetched
from mmhash_service.problems.problem import Problem, naming
from mmhash_service.telemetry import tracing

# The event loop plans a request with at most this many images of at most this many pixels each:
# together about 5000 tokens.
_RECALLED_ITEMS = 4
_RECALLED_PIXELS = 1 << 20


class Needs(NamedTuple):
    """What must be known about media, apart from their keys."""

    sizes: bool = False
    """The sizes of images and frames and the lengths of clips, for a plan."""
    sha256: bool = False
    """The SHA-256 of media at URLs, which SGLang's chats take as a hash."""
    naming: FileNaming | None = None
    """How the engine computes names of images, if it gets no hashes."""


class ResolvedMedia(NamedTuple):
    """An item, and what else is known about the media."""

    item: HashedItem
    header: ImageHeader | None = None
    """The header of an image or of a video's first frame, if it was needed."""
    frames: int | None = None
    """The number of frames, if a video was sent as frames."""
    samples: int | None = None
    """The length of a clip, if it was needed."""
    sha256: bytes | None = None
    """The SHA-256, if the media was fetched for it."""
    engine_name: str | None = None
    """The name that the engine computes for the image."""


class _Encoded(NamedTuple):
    """An image whose pixels must still be hashed."""

    body: memoryview
    digest: Digest
    header: ImageHeader | None


Resolved = dict[MediaSource, ResolvedMedia]

Found = dict[MediaSource, ResolvedMedia | _Encoded | None]
"""For each medium: the result, an image still to be decoded, or None if still to be fetched."""


async def resolve(
    context: RequestContext, sources: Sequence[MediaSource], needs: Needs
) -> Resolved:
    """Read all media, and equal ones only once."""
    if not sources:
        return {}
    with tracing.span("hash"):
        found = await context.work.run(read_inline, context, sources, needs)
        return await read_rest(context, found, needs)


async def read_rest(context: RequestContext, found: Found, needs: Needs) -> Resolved:
    """Decode and fetch what `read_inline` did not read."""
    results = resolved_only(found)

    async def finish(source: MediaSource, pending: _Encoded | None) -> None:
        if pending is not None:
            with naming(path=source.path):
                results[source] = await _finish(context, pending)
            return
        with naming(path=source.path), context.admission.reserve() as admission:
            reserved = replace(context, admission=admission)
            results[source] = await _read_remote(reserved, source, needs)

    await run_few(
        [
            partial(finish, source, pending)
            for source, pending in found.items()
            if not isinstance(pending, ResolvedMedia)
        ]
    )
    return results


def resolved_only(found: Found) -> Resolved:
    """Return only the media that have been read."""
    return {source: one for source, one in found.items() if isinstance(one, ResolvedMedia)}


def read_inline(context: RequestContext, sources: Sequence[MediaSource], needs: Needs) -> Found:
    """Read the media in the request itself. Run this in a thread."""
    if len(sources) > MAX_ITEMS:
        most = f"at most {MAX_ITEMS} are accepted"
        raise Problem("too-many-items", reason=f"there are {len(sources)} items; {most}")
    return {
        source: None if source.is_remote else _read(context, source, needs)
        for source in dict.fromkeys(sources)
    }


def recall_inline(
    context: RequestContext, sources: Sequence[MediaSource], needs: Needs
) -> Resolved | None:
    """Look up the images of a request in the memo, or return None.

    The images must be few, small, in the request itself, and in the memo. This is fast enough for
    the event loop. A hostile image's header is slow to read, so a thread reads each header first.
    """
    if len(sources) > _RECALLED_ITEMS or context.pixels:
        return None
    found: Resolved = {}
    for source in dict.fromkeys(sources):
        if source.modality != "image" or source.is_remote or "%" in source.text:
            return None
        digest = _digest_of(source, context.algorithm)
        header = context.memo.header(context.space, digest)
        if header is None or header.width * header.height > _RECALLED_PIXELS:
            return None
        found[source] = _hashed(context, source, header, needs)
    return found


def _digest_of(source: MediaSource, algorithm: Algorithm) -> Digest:
    with naming(path=source.path), refusing_damage():
        return source.digest(algorithm)


def _read(context: RequestContext, source: MediaSource, needs: Needs) -> ResolvedMedia | _Encoded:
    is_image = source.modality == "image"
    is_pixels = context.pixels and is_image
    with naming(path=source.path):
        if source.is_frames:
            return _read_frames(context, source, needs)
        digest = _digest_of(source, "blake3" if is_pixels else context.algorithm)
        refuse_empty(len(source.content()))
        header = _header(context, source, digest) if needs.sizes and is_image else None
        if is_pixels:
            return _Encoded(memoryview(source.content()), digest, header)
        resolved = _hashed(context, source, header, needs)
        if needs.sizes and source.modality == "audio":
            return resolved._replace(samples=_read_samples(source.content()))
        return resolved


def _read_frames(context: RequestContext, source: MediaSource, needs: Needs) -> ResolvedMedia:
    """Read a video that is sent as frames. Its item is the list of their files."""
    with refusing_damage():
        frames = source.frames()
    parts = []
    for frame in frames:
        refuse_empty(len(frame))
        digest = hash_bytes(memoryview(frame), context.algorithm)
        parts.append(context.item(None, "bytes", "", (), len(frame), digest))
    keys = memoryview(b"".join(part.key.bytes for part in parts))
    digest = hash_bytes(keys, context.algorithm)
    nbytes = sum(part.nbytes for part in parts)
    item = context.item(None, "list", "", (len(parts),), nbytes, digest)
    header = _read_header(frames[0]) if needs.sizes else None
    return ResolvedMedia(item, header, frames=len(frames))


def _hashed(
    context: RequestContext, source: MediaSource, header: ImageHeader | None, needs: Needs
) -> ResolvedMedia:
    digest = source.digest(context.algorithm)
    item = context.item(None, "bytes", "", (), len(source.content()), digest)
    name = None
    if needs.naming is not None and header is not None:
        name = context.memo.engine_name(digest, needs.naming)
        if name is None and (name := needs.naming.name(source.content(), header)) is not None:
            context.memo.keep_engine_name(digest, needs.naming, name)
    return ResolvedMedia(item, header, engine_name=name)


def _header(context: RequestContext, source: MediaSource, digest: Digest) -> ImageHeader:
    header = context.memo.header(context.space, digest)
    if header is None:
        header = _read_header(source.content())
        context.memo.keep_header(context.space, digest, header)
    return header


def _read_header(body: bytearray) -> ImageHeader:
    try:
        return read_size(body)
    except (InputError, LimitError) as error:
        reason = f"the file has {len(body)} bytes, and {error}"
        raise Problem("unplannable-item", reason=reason) from error


def _read_samples(body: bytearray) -> int:
    try:
        return read_samples(body)
    except InputError as error:
        raise Problem("unplannable-item", reason=str(error)) from error


async def _finish(context: RequestContext, encoded: _Encoded) -> ResolvedMedia:
    """Hash the pixels, unless the memo has the result."""
    item = await hash_pixels(context, None, encoded.body, encoded.digest)
    return ResolvedMedia(item, encoded.header)


async def _read_remote(context: RequestContext, source: MediaSource, needs: Needs) -> ResolvedMedia:
    if needs.sizes:
        return await _read_remote_file(context, source, needs)
    is_pixels = source.modality == "image" and context.pixels
    if not needs.sha256:
        item = await hash_url(context, source.text, pixels=is_pixels)
        refuse_empty(item.nbytes)
        return ResolvedMedia(item)
    reader: PixelsReader | StreamReader = (
        PixelsReader(context, None) if is_pixels else StreamReader(context, None, is_media=True)
    )
    sha256 = hashlib.sha256()

    def take(piece: bytes) -> None:
        sha256.update(piece)
        reader.take(piece)

    await read_url(context, source.text, take)
    (item,) = await reader.finish()
    return ResolvedMedia(item, sha256=sha256.digest())


async def _read_remote_file(
    context: RequestContext, source: MediaSource, needs: Needs
) -> ResolvedMedia:
    """Return the image or clip at a URL. The memo has an image that its host says is unchanged."""
    file = _RemoteFile(context, source, needs)
    # The memo stores pixels by the digest of the image's file.
    algorithm = "blake3" if context.pixels else context.algorithm
    return await read_content(context, source.text, algorithm, file)


class _RemoteFile:
    """The file at a URL. It is held whole: some formats state the orientation after the pixels."""

    def __init__(self, context: RequestContext, source: MediaSource, needs: Needs) -> None:
        self._context, self._modality, self._needs = context, source.modality, needs
        self._content = bytearray()
        # The digest of the file; set by `finish`.
        self.digest: Digest

    async def recall(self, fetched: Fetched, /) -> ResolvedMedia | None:
        """Return the image of the URL's last fetch, if the memo still has all its parts."""
        context, digest = self._context, fetched.digest
        header = context.memo.header(context.space, digest)
        if header is None:
            return None
        if context.pixels:
            item = await recall_pixels(context, None, digest)
            return None if item is None else ResolvedMedia(item, header)
        item = context.item(None, "bytes", "", (), fetched.nbytes, digest, memo="hit")
        naming, name = self._needs.naming, None
        if naming is not None and header.is_rgb is not None:
            name = context.memo.engine_name(digest, naming)
            if name is None:  # computing the name takes the content
                return None
        return ResolvedMedia(item, header, engine_name=name)

    def take(self, piece: bytes, /) -> None:
        """Append the next piece."""
        self._context.admission.hold(len(piece))
        self._content += piece

    async def finish(self) -> ResolvedMedia:
        """Return the image or clip."""
        source = MediaSource(self._modality, "", is_url=False, content=self._content)
        measured = await self._context.work.run(_read, self._context, source, self._needs)
        if isinstance(measured, _Encoded):
            self.digest = measured.digest
            resolved = await _finish(self._context, measured)
        else:
            self.digest = measured.item.digest
            resolved = measured._replace(item=measured.item._replace(memo="miss"))
        return resolved
