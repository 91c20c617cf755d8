"""Where in a request a hash goes, and of which media."""

from typing import Any, NamedTuple

from mmhash_service.api.schemas import JsonItem

# What SGLang takes for a URL. Any other text is base64 to it, or a path: that is no base64.
_SCHEMES = ("data:", "http://", "https://", "file:")


class Media(NamedTuple):
    """Media that a request names; equal ones are hashed once."""

    is_image: bool
    url: str | None = None
    data: str | None = None

    def item(self, *, pixels: bool) -> JsonItem:
        """What is hashed: the pixels of an image, if they are asked for, or the bytes."""
        is_pixels = pixels and self.is_image
        return JsonItem(kind="image" if is_pixels else "bytes", url=self.url, data=self.data)


class HashSlot(NamedTuple):
    """A member of an object, or an entry of a list, that is to hold the media's hash."""

    media: Media
    container: Any
    name: str | int
    options: str = ""
    """The canonical text of the options that the hash has to name as well."""


def image_of_sglang(text: str) -> Media:
    """The image that a text names where SGLang takes URLs and plain base64 alike."""
    if text.startswith(_SCHEMES):
        return Media(is_image=True, url=text)
    return Media(is_image=True, data=text)
