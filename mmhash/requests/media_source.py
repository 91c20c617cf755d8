"""One of the media that a request names."""

import hashlib
from typing import Literal

from mmhash.cpu import hash_bytes
from mmhash.digest import Algorithm, Digest
from mmhash.requests.media_text import decode_base64, decode_data_url, is_data_url

Modality = Literal["image", "video", "audio"]


class MediaSource:
    """Media that a request names, decoded and hashed once. A document has one for equal media."""

    __slots__ = ("_content", "_digests", "_sha256", "is_url", "modality", "text")

    def __init__(
        self, modality: Modality, text: str, *, is_url: bool = True, content: bytearray | None
    ) -> None:
        self.modality = modality
        self.text = text
        """A URL or base64, as in the request, or a shorter text if the content was given."""
        self.is_url = is_url
        self._content = content
        self._digests: dict[Algorithm, Digest] = {}
        self._sha256: bytes | None = None

    @property
    def is_remote(self) -> bool:
        """True if the content has to be fetched."""
        return self.is_url and not is_data_url(self.text)

    def content(self) -> bytearray:
        """Return the content of media that is not remote; a damaged text is an InputValueError."""
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
        """Return the SHA-256 of the content, which SGLang takes in chats."""
        if self._sha256 is None:
            self._sha256 = hashlib.sha256(self.content()).digest()
        return self._sha256
