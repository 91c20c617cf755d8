"""Entries of the memo: their names, their encoding, and how they are sealed.

An entry contains no key: framing one takes 3 µs, so one entry serves all tenants. The name of an
entry reveals nothing about its source, and only the source (the image's digest, the URL) opens it:
a reader of the store sees names and lengths.
"""

import struct
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, Self, get_args

from blake3 import blake3
from PIL import __version__ as pillow_version
from PIL import features

from mmhash.digest import DIGEST_SIZE, Algorithm, Digest
from mmhash.fields import field
from mmhash.framing import SPEC_VERSION
from mmhash.prompts.headers import ImageHeader
from mmhash.prompts.headers.header import Format

# A new layout of values needs a new context, so that entries of older releases are not found.
CONTEXT = "mmhash 2026-11-22 memo v2"

# Only an animation with over a thousand palettes exceeds this; it is decoded every time.
MAX_VALUE = 1 << 20
MAX_VALIDATOR = 1024

_SPEC = b"%d" % SPEC_VERSION

_TAG_SIZE = 16
# The longest value in a store; longer ones need not be read.
MAX_SEALED = _TAG_SIZE + MAX_VALUE

_PIXELS = struct.Struct("<QQB")
_FETCHED = struct.Struct("<QHH")
_HEADER = struct.Struct("<LLB")

# The libraries that Pillow decodes with, by Pillow's names.
_DECODERS = ("jpg", "libjpeg_turbo", "zlib", "zlib_ng", "webp", "libtiff")


class Pixels(NamedTuple):
    """A decoded image: everything that its key is computed from, and its EXIF orientation."""

    frames: int
    nbytes: int
    digest: Digest
    extra: bytes
    orientation: int

    def pack(self) -> bytes:
        """Return the value of the entry."""
        head = _PIXELS.pack(self.frames, self.nbytes, self.orientation)
        return head + self.digest.bytes + self.extra

    @classmethod
    def unpack(cls, value: bytes, algorithm: Algorithm) -> Self | None:
        """Return the object that was packed, or None if the value is malformed."""
        end = _PIXELS.size + DIGEST_SIZE[algorithm]
        try:
            frames, nbytes, orientation = _PIXELS.unpack_from(value)
            digest = Digest(algorithm, value[_PIXELS.size : end])
        except (struct.error, ValueError):
            return None
        if not 1 <= orientation <= 8:
            return None
        return cls(frames, nbytes, digest, value[end:], orientation)


class Fetched(NamedTuple):
    """The digest of the content of a URL, with the validators to revalidate it."""

    etag: str | None
    last_modified: str | None
    nbytes: int
    digest: Digest

    def pack(self) -> bytes:
        """Return the value of the entry."""
        etag, modified = (self.etag or "").encode(), (self.last_modified or "").encode()
        head = _FETCHED.pack(self.nbytes, len(etag), len(modified))
        return head + etag + modified + self.digest.bytes

    @classmethod
    def unpack(cls, value: bytes, algorithm: Algorithm) -> Self | None:
        """Return the object that was packed, or None if the value is malformed."""
        start = _FETCHED.size
        try:
            nbytes, etag, modified = _FETCHED.unpack_from(value)
            middle, end = start + etag, start + etag + modified
            texts = value[start:middle], value[middle:end]
            digest = Digest(algorithm, value[end:])
            etag_text, modified_text = (text.decode() or None for text in texts)
        except (struct.error, ValueError):
            return None
        return cls(etag_text, modified_text, nbytes, digest)


def pack_header(header: ImageHeader) -> bytes:
    """Return the value of the entry of an image's header."""
    head = _HEADER.pack(header.width, header.height, header.orientation)
    return head + header.format.encode()


def unpack_header(value: bytes) -> ImageHeader | None:
    """Return the header that was packed, or None if the value is malformed."""
    try:
        width, height, orientation = _HEADER.unpack_from(value)
        name: Any = value[_HEADER.size :].decode()
    except (struct.error, UnicodeDecodeError):
        return None
    if name not in get_args(Format) or not 1 <= orientation <= 8:
        return None
    return ImageHeader(name, width, height, orientation)


class SealedEntry:
    """The name of an entry and the keys that seal it, all derived from its source."""

    def __init__(self, *source: bytes) -> None:
        framed = b"".join(map(field, source))
        derived = blake3(framed, derive_key_context=CONTEXT).digest(length=96)
        self.name, self._tag_key, self._mask_key = derived[:32], derived[32:64], derived[64:]

    def seal(self, value: bytes) -> bytes:
        """Return the value as it is stored: a tag and the masked value."""
        tag = self._tag(value)
        return tag + self._masked(value, tag)

    def open(self, sealed: bytes) -> bytes | None:
        """Return the value, or None if `seal` did not return these bytes."""
        if len(sealed) > MAX_SEALED:
            return None
        tag = sealed[:_TAG_SIZE]
        value = self._masked(sealed[_TAG_SIZE:], tag)
        return value if self._tag(value) == tag else None

    def _tag(self, value: bytes) -> bytes:
        return blake3(value, key=self._tag_key).digest(length=_TAG_SIZE)

    def _masked(self, text: bytes, tag: bytes) -> bytes:
        stream = blake3(tag, key=self._mask_key).digest(length=len(text))
        return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))


def pixels_entry(
    space: bytes, algorithm: Algorithm, max_pixels: int, encoded: Digest
) -> SealedEntry:
    """Return the entry of a decoded image, by the digest of the encoded one.

    The pixel limit is part of the name because a lower limit may refuse the image.
    """
    settings = (_SPEC, decoders(), b"%d" % max_pixels)
    return SealedEntry(b"pixels", algorithm.encode(), *settings, space, encoded.bytes)


def header_entry(space: bytes, encoded: Digest) -> SealedEntry:
    """Return the entry of an image's header, by the digest of the image's file."""
    return SealedEntry(b"header", encoded.algorithm.encode(), _SPEC, space, encoded.bytes)


def media_entry(space: bytes, modality: str, encoded: Digest, recipe: bytes) -> SealedEntry:
    """Return the entry of a clip under a recipe; that of its index has an empty recipe."""
    source = (space, encoded.bytes, recipe, media_decoder())
    return SealedEntry(b"media", modality.encode(), _SPEC, *source)


def url_entry(space: bytes, algorithm: Algorithm, url: str) -> SealedEntry:
    """Return the entry of the content of a URL."""
    return SealedEntry(b"url", algorithm.encode(), _SPEC, space, url.encode())


@cache
def media_decoder() -> bytes:
    """Return the version of PyAV, which pins those of FFmpeg: others may decode other pixels."""
    try:
        return version("av").encode()  # not av.__version__: PyAV is imported only by decoders
    except PackageNotFoundError:
        return b""


@cache
def decoders() -> bytes:
    """Return the versions of Pillow and its decoders: other versions may decode other pixels."""
    versions = [f"{name} {features.version(name)}" for name in _DECODERS]
    return "\n".join([f"Pillow {pillow_version}", *versions]).encode()
