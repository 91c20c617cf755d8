"""The content of an item in a request: its text, such as a data: URL (RFC 2397), and its bytes."""

import binascii
import hashlib
import re
from typing import Literal
from urllib.parse import unquote_to_bytes

import pybase64

from mmhash.cpu import hash_bytes
from mmhash.digest import Algorithm, Digest
from mmhash.errors import InputValueError
from mmhash.json_pointer import Path, pointer_of

Modality = Literal["image", "video", "audio"]

# An engine that takes base64 in place of a URL reads any text without a scheme as base64 or as a
# path. A path is not valid base64, so decoding refuses it.
_SCHEMES = ("data:", "http://", "https://", "file:")

# A URL needs few escapes, for plus, slash and equals signs, and an escape is slow to decode.
_MAX_ESCAPES = 100_000

# With parameters in the URL, not every release of vLLM may read frames.
_FRAMES = "data:video/jpeg;base64,"

# vLLM takes the first 32 frames by default.
_MAX_FRAMES = 1024

_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")

# Base64 is decoded in steps, to let other threads take the GIL in between.
_STEP = 1 << 20

# vLLM builds a data: URL from an audio clip's format and data. With a comma in the format, the
# content would begin at that comma.
_FORMAT = re.compile(r"[A-Za-z0-9.+-]{0,64}", re.ASCII)


class Base64Error(InputValueError):
    """The base64 of an item is damaged."""


class DataUrlError(InputValueError):
    """A data: URL cannot be read."""


class MediaSource:
    """The content of an item, decoded and hashed once. Equal items of a document share it."""

    __slots__ = (
        "_content",
        "_digests",
        "_sha256",
        "has_word",
        "is_url",
        "modality",
        "path",
        "text",
    )

    def __init__(
        self,
        modality: Modality,
        text: str,
        *,
        is_url: bool = True,
        content: bytearray | None,
        path: Path = (),
    ) -> None:
        self.modality = modality
        self.text = text
        """The URL or base64 in the request, or a shorter text if the content is known."""
        self.is_url = is_url
        self.path = path
        """The first place of the item in the request, or empty if unknown."""
        self.has_word = content is not None
        """True if a placeholder word stands for the content in the members of the document."""
        self._content = content
        self._digests: dict[Algorithm, Digest] = {}
        self._sha256: bytes | None = None

    @property
    def pointer(self) -> str | None:
        """The first place of the item as a JSON pointer, or None if unknown."""
        return pointer_of(self.path) or None

    @property
    def is_remote(self) -> bool:
        """True if the content must be fetched."""
        return self.is_url and not is_data_url(self.text)

    @property
    def is_frames(self) -> bool:
        """True for a video that is sent as files of its frames instead of one file."""
        return self.modality == "video" and self.text[: len(_FRAMES)].lower() == _FRAMES

    def frames(self) -> list[bytearray]:
        """Return the file of each frame. Raise InputValueError if the text is damaged."""
        if self._content is not None:
            return [self._content]
        texts = self.text[len(_FRAMES) :].split(",", _MAX_FRAMES)
        if len(texts) > _MAX_FRAMES:
            raise DataUrlError(f"a video may have at most {_MAX_FRAMES} frames")
        return list(map(decode_base64, texts))

    def content(self) -> bytearray:
        """Return content that is not remote. Raise InputValueError if the text is damaged."""
        if self._content is None:
            decode = decode_data_url if self.is_url else decode_base64
            self._content = decode(self.text)
        return self._content

    def digest(self, algorithm: Algorithm) -> Digest:
        """Return the digest of the content."""
        if algorithm not in self._digests:
            self._digests[algorithm] = hash_bytes(memoryview(self.content()), algorithm)
        return self._digests[algorithm]

    def sha256(self) -> bytes:
        """Return the SHA-256 of the content, which SGLang accepts in chats."""
        if self._sha256 is None:
            self._sha256 = hashlib.sha256(self.content()).digest()
        return self._sha256


def has_scheme(text: str) -> bool:
    """Return True if an engine that takes URLs or plain base64 reads the text as a URL."""
    return text.startswith(_SCHEMES)


def is_data_url(text: str) -> bool:
    """Return True if the scheme is data:."""
    return text[:5].lower() == "data:"


def decode_base64(text: str | bytes | memoryview) -> bytearray:
    """Decode standard base64 with padding."""
    try:
        return _decode_in_steps(text)
    except (binascii.Error, ValueError) as error:
        raise Base64Error(_damage_of(text, str(error))) from error


def _damage_of(text: str | bytes | memoryview, otherwise: str) -> str:
    """Return why a text is not standard base64 with padding."""
    spelled = text if isinstance(text, str) else bytes(text).decode("latin-1")
    wrong = _NOT_BASE64.search(spelled)
    if wrong is not None:
        return f"the character {wrong[0]!r} at {wrong.start()} is not base64"
    if len(spelled) % 4:
        return f"base64 must be padded to a multiple of 4 characters, and has {len(spelled)}"
    return f"the base64 is damaged: {otherwise}"


def _decode_in_steps(text: str | bytes | memoryview) -> bytearray:
    if len(text) <= _STEP:
        return pybase64.b64decode_as_bytearray(text, validate=True)
    content = bytearray()
    for start in range(0, len(text), _STEP):
        if len(content) % 3:
            raise ValueError("padding in its middle")
        content += pybase64.b64decode(text[start : start + _STEP], validate=True)
    return content


def decode_data_url(text: str) -> bytearray:
    """Return the content of a data: URL."""
    head, comma, content = text.partition(",")
    # A fragment is not part of the content, so refuse it rather than ignore it.
    if not comma or "#" in text or not text.isascii():
        has = "no comma" if not comma else "a #" if "#" in text else "a character that is not ASCII"
        raise DataUrlError(
            "a data: URL must be ASCII, with a comma before its content and without a fragment:"
            f" this one has {has}"
        )
    has_escapes = "%" in content
    if has_escapes and content.count("%") > _MAX_ESCAPES:
        raise DataUrlError(f"a data: URL must have at most {_MAX_ESCAPES} escapes")
    if not head.lower().endswith(";base64"):
        return bytearray(unquote_to_bytes(content))
    return decode_base64(unquote_to_bytes(content).decode("latin-1") if has_escapes else content)


def is_clear(text: str) -> bool:
    """Return False for a data: URL whose content engines decode differently.

    Engines decode everything after the comma as base64, whatever comes before it. vLLM before 0.30
    skips percent signs in videos and audio clips. A URL without content is unclear too.
    """
    if not is_data_url(text):
        return True
    comma = text.find(",")
    head = text[: comma + 1].lower()
    if head.startswith("data:video/jpeg;") and head != _FRAMES:
        return False
    is_base64 = comma >= 0 and text.endswith(";base64", 0, comma)
    return is_base64 and text.find("%", comma) < 0 and comma + 1 < len(text)


def is_clear_format(format_: object) -> bool:
    """Return True if the value is a plain name, as an audio clip's format should be."""
    return isinstance(format_, str) and _FORMAT.fullmatch(format_) is not None
