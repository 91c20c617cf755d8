"""The places in a request that hold hashes, and the media that they are of."""

from typing import Any, NamedTuple

from mmhash_service.api.schemas.items import JsonItem
from mmhash_service.fetch.data import is_data_url

# An engine that takes base64 in place of a URL reads any other text as base64 or as a path. A path
# is not valid base64, so it is refused here.
_SCHEMES = ("data:", "http://", "https://", "file:")


class Media(NamedTuple):
    """Media that a request names; equal ones are hashed once."""

    is_image: bool
    url: str | None = None
    data: str | None = None

    @property
    def is_remote(self) -> bool:
        """True if the content has to be fetched."""
        return self.url is not None and not is_data_url(self.url)

    def item(self, *, pixels: bool) -> JsonItem:
        """Return the item to hash: the pixels of an image, if `pixels`, or the bytes."""
        is_pixels = pixels and self.is_image
        return JsonItem(kind="image" if is_pixels else "bytes", url=self.url, data=self.data)


class HashSlot(NamedTuple):
    """A member of an object, or an entry of a list, that is to hold the media's hash."""

    media: Media
    container: Any
    name: str | int
    options: str = ""
    """The canonical text of the options that the hash has to name as well."""


def image_of(text: str) -> Media:
    """Return the image that a text names to an engine that takes URLs and plain base64 alike."""
    if text.startswith(_SCHEMES):
        return Media(is_image=True, url=text)
    return Media(is_image=True, data=text)
