"""What the memo keeps, where, and as which bytes.

A key is not kept: framing it anew takes 4 µs, and so one entry serves all tenants. Where an entry
lies tells nothing of what it is of, and only who holds that (the image's digest, the URL) can open
it: a store that others read shows them names and lengths.
"""

import struct
from functools import cache
from typing import NamedTuple, Self

from blake3 import blake3
from PIL import __version__ as pillow_version
from PIL import features

from mmhash.digest import DIGEST_SIZE, Algorithm, Digest
from mmhash.framing import SPEC_VERSION, field

# Another layout of values has another context: what an older release wrote is then not found.
CONTEXT = "mmhash 2026-11-21 memo v1"

# An animation of a thousand frames with a palette each is longer: it is decoded every time.
MAX_VALUE = 1 << 20
MAX_VALIDATOR = 1024

_TAG_SIZE = 16
# What a store has of an entry at most; of a longer one no more than that need be read.
MAX_SEALED = _TAG_SIZE + MAX_VALUE

_PIXELS = struct.Struct("<QQ")
_FETCHED = struct.Struct("<QHH")

# What makes pixels of a file, as Pillow knows it.
_DECODERS = ("jpg", "libjpeg_turbo", "zlib", "zlib_ng", "webp", "libtiff")


class Pixels(NamedTuple):
    """An image, decoded: all that its key is made of."""

    frames: int
    nbytes: int
    digest: Digest
    extra: bytes

    def pack(self) -> bytes:
        """The value of its entry."""
        return _PIXELS.pack(self.frames, self.nbytes) + self.digest.bytes + self.extra

    @classmethod
    def unpack(cls, value: bytes, algorithm: Algorithm) -> Self | None:
        """What `pack` was called on, unless another wrote the value."""
        end = _PIXELS.size + DIGEST_SIZE[algorithm]
        try:
            frames, nbytes = _PIXELS.unpack_from(value)
            digest = Digest(algorithm, value[_PIXELS.size : end])
        except (struct.error, ValueError):
            return None
        return cls(frames, nbytes, digest, value[end:])


class Fetched(NamedTuple):
    """What a URL gave, and by which validators its server can tell that it still does."""

    etag: str | None
    last_modified: str | None
    nbytes: int
    digest: Digest

    def pack(self) -> bytes:
        """The value of its entry."""
        etag, modified = (self.etag or "").encode(), (self.last_modified or "").encode()
        head = _FETCHED.pack(self.nbytes, len(etag), len(modified))
        return head + etag + modified + self.digest.bytes

    @classmethod
    def unpack(cls, value: bytes, algorithm: Algorithm) -> Self | None:
        """What `pack` was called on, unless another wrote the value."""
        at = _FETCHED.size
        try:
            nbytes, etag, modified = _FETCHED.unpack_from(value)
            texts = value[at : at + etag], value[at + etag : at + etag + modified]
            digest = Digest(algorithm, value[at + etag + modified :])
            etag_text, modified_text = (text.decode() or None for text in texts)
        except (struct.error, ValueError):
            return None
        return cls(etag_text, modified_text, nbytes, digest)


class SealedEntry:
    """Where an entry lies, and what opens it."""

    def __init__(self, *of: bytes) -> None:
        known = blake3(b"".join(map(field, of)), derive_key_context=CONTEXT).digest(length=96)
        self.name, self._tag_key, self._mask_key = known[:32], known[32:64], known[64:]

    def seal(self, value: bytes) -> bytes:
        """The value as a store has it."""
        tag = self._tag(value)
        return tag + self._masked(value, tag)

    def open(self, sealed: bytes) -> bytes | None:
        """The value, if these are the bytes that `seal` gave."""
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


def place_of_pixels(
    space: bytes, algorithm: Algorithm, max_pixels: int, encoded: Digest
) -> SealedEntry:
    """Where the pixels of the image with that encoded digest are.

    Under another limit of pixels the image might be refused: that is another place.
    """
    limit = b"%d" % max_pixels
    versions = (b"%d" % SPEC_VERSION, decoders())
    return SealedEntry(b"pixels", algorithm.encode(), *versions, limit, space, encoded.bytes)


def place_of_url(space: bytes, algorithm: Algorithm, url: str) -> SealedEntry:
    """Where the digest of what the URL gave is."""
    return SealedEntry(b"url", algorithm.encode(), b"%d" % SPEC_VERSION, space, url.encode())


@cache
def decoders() -> bytes:
    """Pillow and its decoders by their versions: another one may give other pixels."""
    versions = [f"{name} {features.version(name)}" for name in _DECODERS]
    return "\n".join([f"Pillow {pillow_version}", *versions]).encode()
