"""The content of an item in a request."""

import hashlib
from typing import Literal

from mmhash.cpu import hash_bytes
from mmhash.digest import Algorithm, Digest
from mmhash.requests.media_text import decode_base64, decode_data_url, is_data_url

Modality = Literal["image", "video", "audio"]


class MediaSource:
    """The content of an item, decoded and hashed once. Equal items of a document share it."""

    __slots__ = ("_content", "_digests", "_sha256", "is_url", "modality", "pointer", "text")

    def __init__(
        self,
        modality: Modality,
        text: str,
        *,
        is_url: bool = True,
        content: bytearray | None,
        pointer: str | None = None,
    ) -> None:
        self.modality = modality
        self.text = text
        """The URL or base64 in the request, or a shorter text if the content is known."""
        self.is_url = is_url
        self.pointer = pointer
        """Its first place in the request, as a JSON pointer; None if that is not known."""
        self._content = content
        self._digests: dict[Algorithm, Digest] = {}
        self._sha256: bytes | None = None

    @property
    def is_remote(self) -> bool:
        """True if the content must be fetched."""
        return self.is_url and not is_data_url(self.text)

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
