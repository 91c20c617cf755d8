"""Entries of the memo: their names, encoding and seals.

An entry contains no key, because framing a key is cheap. An entry's name reveals nothing about its
source, and only the source (the image's digest, the URL) opens the entry. Someone who reads the
store sees names and lengths.
"""

from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from blake3 import blake3
from PIL import __version__ as pillow_version
from PIL import features

from mmhash.digest import Algorithm, Digest
from mmhash.errors import InputError
from mmhash.fields import field
from mmhash.framing import SPEC_VERSION
from mmhash.prompts.headers import ImageHeader
from mmhash.prompts.processor.messages import Question

T = TypeVar("T")

# Change the context with the layout of values: entries of older releases must not be found.
CONTEXT = "mmhash 2026-11-24 memo v4"

# Only an animation with over a thousand palettes exceeds this; it is decoded every time.
MAX_VALUE = 1 << 20

_SPEC = b"%d" % SPEC_VERSION

_TAG_SIZE = 16

# The libraries that Pillow decodes with, by Pillow's names.
_DECODERS = ("jpg", "libjpeg_turbo", "zlib", "zlib_ng", "webp", "libtiff")


class Pixels(NamedTuple):
    """A decoded image: everything that its key is computed from, and its EXIF orientation."""

    frames: int
    nbytes: int
    digest: Digest
    extra: bytes
    orientation: int


class Fetched(NamedTuple):
    """The digest of a URL's content, with the validators to revalidate it."""

    etag: str | None
    last_modified: str | None
    nbytes: int
    digest: Digest


def pack(value: Pixels | Fetched | ImageHeader) -> bytes:
    """Return the value of an entry."""
    return msgspec.msgpack.encode(value, enc_hook=str)  # a Digest is its text


def unpack(kind: type[T], value: bytes) -> T | None:
    """Return the object that was packed, or None if the value is malformed."""
    try:
        return msgspec.msgpack.decode(value, type=kind, dec_hook=_parse_digest)
    except (msgspec.DecodeError, InputError):
        return None


def _parse_digest(_kind: type, text: Any) -> Digest:
    return Digest.parse(text)


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
    """Return the entry of a decoded image, given the digest of the encoded image.

    The name includes the pixel limit, because a lower limit may refuse the image.
    """
    settings = (_SPEC, decoders(), b"%d" % max_pixels)
    return SealedEntry(b"pixels", algorithm.encode(), *settings, space, encoded.bytes)


def header_entry(space: bytes, encoded: Digest) -> SealedEntry:
    """Return the entry of an image's header, given the digest of the image's file."""
    return SealedEntry(b"header", encoded.algorithm.encode(), _SPEC, space, encoded.bytes)


def expansion_entry(processor: bytes, question: Question) -> SealedEntry:
    """Return the entry of a processor's answer; the processor's identity covers all its files."""
    return SealedEntry(b"expansion", processor, msgspec.msgpack.encode(question))


def url_entry(space: bytes, algorithm: Algorithm, url: str) -> SealedEntry:
    """Return the entry of the content of a URL."""
    return SealedEntry(b"url", algorithm.encode(), _SPEC, space, url.encode())


@cache
def decoders() -> bytes:
    """Return the versions of Pillow and its decoders: other versions may decode other pixels."""
    versions = [f"{name} {features.version(name)}" for name in _DECODERS]
    return "\n".join([f"Pillow {pillow_version}", *versions]).encode()
