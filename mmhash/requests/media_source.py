"""One of the media that a request names."""

from dataclasses import dataclass
from typing import Literal

from mmhash.requests.media_text import decode_base64, decode_data_url, is_data_url

Modality = Literal["image", "video", "audio"]


@dataclass(frozen=True, slots=True, eq=False)
class MediaSource:
    """Media that a request names. A document has one object for equal media.

    Args:
        modality: The kind of media.
        text: A URL or base64, as in the request, or a shorter text if `inline` is given.
        is_url: False for plain base64.
        inline: The content, if it has been decoded.
    """

    modality: Modality
    text: str
    is_url: bool = True
    inline: bytearray | None = None

    @property
    def is_remote(self) -> bool:
        """True if the content has to be fetched."""
        return self.is_url and not is_data_url(self.text)

    def content(self) -> bytearray:
        """Return the content of media that is not remote; a damaged text is an InputValueError."""
        if self.inline is not None:
            return self.inline
        return decode_data_url(self.text) if self.is_url else decode_base64(self.text)
