"""Entries of the memo: their names and values, and the seal of a value in the store.

Name and seal are derived from the entry's source: the digest of an image's file, or a URL. Whoever
reads the store sees only names and lengths, and cannot guess a source from its name.
"""

from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from blake3 import blake3
from PIL import __version__ as pillow_version
from PIL import features

from mmhash.digest import Algorithm, Digest
from mmhash.errors import InputError
from mmhash.fields import field
from mmhash.framing import SPEC_VERSION
from mmhash.prompts.processor.messages import Question

T = TypeVar("T")

# Change this whenever the layout of a value changes, or entries of older releases would be read.
CONTEXT = "mmhash 2026-11-28 memo v5"

# Only an animation with over a thousand palettes exceeds this. It is decoded every time.
MAX_VALUE = 1 << 20

_SPEC = b"%d" % SPEC_VERSION

_TAG_SIZE = 16

# The libraries that Pillow decodes with, by Pillow's names.
_DECODERS = ("jpg", "libjpeg_turbo", "zlib", "zlib_ng", "webp", "libtiff")


class Pixels(NamedTuple):
    """A decoded image: everything that determines its key, and its EXIF orientation."""

    frames: int
    nbytes: int
    digest: Digest
    extra: bytes
    orientation: int


class Fetched(NamedTuple):
    """The content that a URL had at its last fetch, and the ETag to revalidate it."""

    etag: str
    nbytes: int
    digest: Digest


class Entry(Generic[T]):
    """An entry, before its value is known."""

    def __init__(self, label: str, kind: type[T], *source: bytes) -> None:
        self.label = label
        self._kind = kind
        framed = b"".join(map(field, (label.encode(), *source)))
        derived = blake3(framed, derive_key_context=CONTEXT).digest(length=96)
        self.name, self._tag_key, self._mask_key = derived[:32], derived[32:64], derived[64:]

    def pack(self, value: T) -> bytes:
        """Return the value as bytes."""
        return msgspec.msgpack.encode(value, enc_hook=str)  # a Digest is its text

    def unpack(self, packed: bytes) -> T | None:
        """Return the value, or None if the bytes are malformed."""
        try:
            return msgspec.msgpack.decode(packed, type=self._kind, dec_hook=_parse_digest)
        except (msgspec.DecodeError, InputError):
            return None

    def seal(self, packed: bytes) -> bytes:
        """Return packed bytes as the store has them: a tag, then the masked bytes."""
        tag = self._tag(packed)
        return tag + self._masked(packed, tag)

    def open(self, sealed: bytes) -> bytes | None:
        """Return the packed bytes, or None if `seal` did not return `sealed`."""
        tag = sealed[:_TAG_SIZE]
        packed = self._masked(sealed[_TAG_SIZE:], tag)
        return packed if self._tag(packed) == tag else None

    def _tag(self, packed: bytes) -> bytes:
        return blake3(packed, key=self._tag_key).digest(length=_TAG_SIZE)

    def _masked(self, text: bytes, tag: bytes) -> bytes:
        stream = blake3(tag, key=self._mask_key).digest(length=len(text))
        return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))


def _parse_digest(_kind: type, text: Any) -> Digest:
    return Digest.parse(text)


def pixels_entry(
    space: bytes, algorithm: Algorithm, max_pixels: int, encoded: Digest
) -> Entry[Pixels]:
    """Return the entry of a decoded image, found by the digest of its file.

    The pixel limit is part of the source, because a lower limit may refuse the image.
    """
    settings = (_SPEC, decoders(), b"%d" % max_pixels)
    return Entry("pixels", Pixels, algorithm.encode(), *settings, space, encoded.bytes)


def expansion_entry(processor: bytes, question: Question) -> Entry[bytes]:
    """Return the entry of a processor's answer. `processor` identifies all of its files."""
    return Entry("expansion", bytes, processor, msgspec.msgpack.encode(question))


def url_entry(space: bytes, algorithm: Algorithm, url: str) -> Entry[Fetched]:
    """Return the entry of a URL's content."""
    return Entry("url", Fetched, algorithm.encode(), _SPEC, space, url.encode())


@cache
def decoders() -> bytes:
    """Return the versions of Pillow and its decoders: other versions may decode other pixels."""
    versions = [f"{name} {features.version(name)}" for name in _DECODERS]
    return "\n".join([f"Pillow {pillow_version}", *versions]).encode()
