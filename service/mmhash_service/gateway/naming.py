"""Check whether a worker stores blocks under the names that the gateway plans.

With a wrong release, engine, algorithm, seed, block size or events port, every request still
succeeds, but every lookup misses. No I/O, no clock.
"""

from typing import Literal

from msgspec import Struct, ValidationError
from msgspec.json import Decoder

# After this many planned blocks that no event has named, the worker counts as misnamed. A wrong
# name hides all blocks of a prompt, so two short prompts are enough.
ENOUGH_BLOCKS = 8

PLUGIN_PATH = b"/mmhash"
"""The path at which SGLang's server says what mmhash's plugin does."""

Verdict = Literal["unknown", "right", "wrong"]


class NameCheck:
    """Compares the blocks that a worker should have stored with its events."""

    def __init__(self) -> None:
        self._missing = 0
        self._is_right = False

    def add(self, *, is_found: bool, missing: int) -> None:
        """Count the blocks of an answered request."""
        if is_found:
            self._is_right = True
            self._missing = 0  # blocks evicted early or published late are not misnamed
        else:
            self._missing += missing

    @property
    def missing(self) -> int:
        """The number of planned blocks since an event last named one."""
        return self._missing

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the events so far."""
        if self._missing >= ENOUGH_BLOCKS:
            return "wrong"
        return "right" if self._is_right else "unknown"


class _Plugin(Struct):
    features: list[Literal["keys", "guard", "features", "tenants"]]


_PLUGIN = Decoder(_Plugin)


def read_plugin(status: int, body: bytes) -> list[str] | None:
    """Return what the plugin does in a server, or None without the plugin."""
    if status != 200:
        return None
    try:
        return sorted(_PLUGIN.decode(body).features)
    except (ValidationError, ValueError):
        return None
