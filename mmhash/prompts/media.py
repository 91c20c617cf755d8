"""Media of a request: its size and its key, from bytes in the request or from the caller."""

import binascii
from collections.abc import Callable, Mapping
from io import BufferedReader, BytesIO
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote_to_bytes

import pybase64

from mmhash.arguments import check_number
from mmhash.digest import Digest
from mmhash.engines.checks import whole
from mmhash.errors import InputTypeError, InputValueError
from mmhash.framing import frame
from mmhash.hashing import digest
from mmhash.io.images import read_image_file
from mmhash.prompts.families.family import MediaSize, Modality
from mmhash.prompts.headers import engine_size, read_size

# Decoding an escape takes 0.25 µs. Base64 needs few: for plus, slash and equals signs.
_MAX_ESCAPES = 100_000

_REMOTE = ("http://", "https://", "file:")

MAX_ITEMS = 1024


class Media(NamedTuple):
    """The size and key of an item that the caller knows, such as one behind a URL."""

    size: MediaSize
    key: Digest
    exif_orientation: int = 1
    """The orientation of an image whose key is that of its pixels."""
    file_digest: Digest | None = None
    """The BLAKE3 digest of an image's file, by which a server in Rust names it."""


KnownMedia = Mapping[str, Media] | Callable[[str], Media | None]
"""Media by URL, or a function that returns the media of a URL."""


class MediaSource(NamedTuple):
    """Media that a request names; equal ones are decoded once."""

    modality: Modality
    text: str


class UnknownMediaError(InputValueError):
    """Media is neither in the request nor known to the caller."""


class MediaReader:
    """The media of one request."""

    def __init__(
        self,
        known: KnownMedia,
        *,
        of: Literal["bytes", "pixels"],
        tenant: bytes | None,
        engine: str,
        release: str,
        model_type: str,
    ) -> None:
        self._known = known
        self._of = of
        self._tenant = tenant
        self._engine, self._release, self._model_type = engine, release, model_type
        self._decoded: dict[MediaSource, Media] = {}

    def read(self, source: MediaSource) -> Media:
        """Return the size and key of media; what cannot be known is an UnknownMediaError."""
        if (found := self._find(source)) is not None:
            return found
        if self._of == "bytes":
            return self._read_inline(source)
        if source not in self._decoded:
            self._decoded[source] = self._read_inline(source)
        return self._decoded[source]

    def _find(self, source: MediaSource) -> Media | None:
        """Return what the caller knows of media."""
        known = self._known
        if not known:  # a text as a name is hashed: 0.1 ms for an image, as reading its bytes takes
            return None
        found = known(source.text) if callable(known) else known.get(source.text)
        if found is not None:
            _check_media(found, source.modality)
        return found

    def _read_inline(self, source: MediaSource) -> Media:
        if source.modality != "image":
            raise UnknownMediaError(f"give the size and key of this {source.modality} to plan()")
        if source.text.startswith(_REMOTE):
            raise UnknownMediaError("give the sizes and keys of media behind URLs to plan()")
        data = decode_inline(source.text)
        width, height = engine_size(
            read_size(data), self._engine, self._release, model_type=self._model_type
        )
        size = MediaSize(width=width, height=height)
        if self._of == "bytes":
            file_digest = digest(data)
            named = frame("bytes", "", (), file_digest, tenant=self._tenant)
            return Media(size, named, file_digest=file_digest)
        image = read_image_file(BufferedReader(BytesIO(data)))
        named = image.key(digest(image.pixels), tenant=self._tenant)
        return Media(size, named, image.exif_orientation)


def _check_media(media: Any, modality: Modality) -> None:
    """Refuse media of the caller whose size or key cannot be."""
    if not isinstance(media, Media):
        raise InputTypeError(f"media holds Media, not {type(media).__name__}")
    size = media.size
    if not isinstance(size, MediaSize):
        raise InputTypeError(f"size of a Media is a MediaSize, not {type(size).__name__}")
    if not isinstance(media.key, Digest):
        raise InputTypeError(f"key of a Media is a Digest, not {type(media.key).__name__}")
    whole("exif_orientation", media.exif_orientation, 1, 8)
    least_side = 0 if modality == "audio" else 1
    whole("width", size.width, least_side)
    whole("height", size.height, least_side)
    whole("frames", size.frames)
    whole("samples", size.samples)
    if size.fps is not None:
        check_number("fps", size.fps)
    if not isinstance(size.times, tuple):
        raise InputTypeError(f"times is a tuple, not {type(size.times).__name__}")
    for time in size.times:
        check_number("a time", time)


def decode_inline(text: str) -> bytes:
    """Return the bytes of a data: URL or of plain base64."""
    if text[:5].lower() != "data:":
        return _decode_base64(text)
    comma = text.find(",")
    if comma < 0 or "#" in text:
        raise InputValueError("a data: URL has a comma before its content, and no fragment")
    if text[:comma].lower().endswith(";base64"):
        content = text[comma + 1 :]
        if "%" in content:
            content = _unquote(content).decode("latin-1")
        return _decode_base64(content)
    return _unquote(text[comma + 1 :])


def _unquote(text: str) -> bytes:
    if text.count("%") > _MAX_ESCAPES:
        raise InputValueError(f"a data: URL has more than {_MAX_ESCAPES} escapes")
    return unquote_to_bytes(text)


def _decode_base64(text: str) -> bytes:
    try:
        # SIMD: 0.02 ms for a JPEG of 320 KB, for which binascii takes 1.2 ms.
        return pybase64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputValueError(f"the base64 of an item is damaged: {error}") from error
