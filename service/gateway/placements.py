"""The workers of content whose blocks have no names: events cannot show where it is cached.

SGLang names the blocks behind an image in a chat by the pixels that it computes itself, and a
request without a plan has no blocks at all. What this process sent to a worker is the best guess.
No I/O, no clock.
"""

from collections import OrderedDict

# 128 bytes each. An engine's cache holds fewer images.
MAX_KEYS = 1 << 16


class Placements:
    """The worker that was last sent a first image, for the images that were sent last."""

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        """Make an empty memory for at most `max_keys`."""
        self._max_keys = max_keys
        self._urls: OrderedDict[bytes, str] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._urls)

    def note(self, key: bytes, url: str) -> None:
        """Remember the worker of an image."""
        self._urls[key] = url
        self._urls.move_to_end(key)
        if len(self._urls) > self._max_keys:
            self._urls.popitem(last=False)

    def find(self, key: bytes) -> str | None:
        """Return the worker of an image, None if it is not known."""
        return self._urls.get(key)
