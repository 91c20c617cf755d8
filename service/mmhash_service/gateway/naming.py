"""Whether a worker stores blocks under the names that the gateway plans for it.

A wrong release, engine, algorithm, seed, block size or events port fails no request. It only costs
the benefit, because no lookup finds anything. No I/O, no clock.
"""

from typing import Literal

from msgspec import Struct, ValidationError
from msgspec.json import Decoder

# Planned blocks that no event has named until the worker counts as misnamed. Every one of a prompt
# is missing then, so two short prompts are enough.
ENOUGH_BLOCKS = 8

PLUGIN_PATH = b"/mmhash"
"""Where SGLang's server says what mmhash's plugin does in it."""

Verdict = Literal["unknown", "right", "wrong"]


class NameCheck:
    """Compares the blocks that one worker was expected to store with its events."""

    def __init__(self) -> None:
        self._missing = 0
        self._is_right = False

    def add(self, *, is_found: bool, missing: int) -> None:
        """Count the blocks of a request that the worker has answered."""
        if is_found:
            self._is_right = True
            self._missing = 0  # what is evicted at once, or published late, is no wrong name
        else:
            self._missing += missing

    @property
    def missing(self) -> int:
        """The planned blocks since the last one that an event named."""
        return self._missing

    @property
    def verdict(self) -> Verdict:
        """Return what the events say so far."""
        if self._missing >= ENOUGH_BLOCKS:
            return "wrong"
        return "right" if self._is_right else "unknown"


class _Plugin(Struct):
    features: list[Literal["keys", "guard", "features"]]


_PLUGIN = Decoder(_Plugin)


def read_plugin(status: int, body: bytes) -> list[str] | None:
    """Return what the plugin does in a server, or None if it has none."""
    if status != 200:
        return None
    try:
        return sorted(_PLUGIN.decode(body).features)
    except (ValidationError, ValueError):
        return None
