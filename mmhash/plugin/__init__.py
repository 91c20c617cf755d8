"""mmhash inside an engine: SGLang and vLLM load these modules by entry points.

Installing the library changes nothing by itself: the variable MMHASH_PLUGIN says what to switch on.
Any of `keys`, `guard` and `features` may be named, separated by commas.
"""

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from mmhash.errors import TagError
from mmhash.tags import open_tag

logger = logging.getLogger("mmhash.plugin")

VARIABLE = "MMHASH_PLUGIN"
FEATURES = ("keys", "guard", "features")

# The guard's own settings, as its middleware reads them.
_SECRETS = "MMHASH_GUARD_SECRETS"
_TENANT = "MMHASH_GUARD_TENANT"

Result = TypeVar("Result")


def chosen(engine: str) -> frozenset[str]:
    """Return what MMHASH_PLUGIN switches on; end the engine if the variable is misspelled."""
    text = os.environ.get(VARIABLE, "")
    names = frozenset(filter(None, (name.strip() for name in text.split(","))))
    if unknown := sorted(names.difference(FEATURES)):
        # Engines only log what a plugin raises, and would start without the guard.
        raise SystemExit(f"{VARIABLE} names {unknown[0]!r}: choose from {', '.join(FEATURES)}")
    if names:
        logger.warning("mmhash is on in %s: %s", engine, ", ".join(sorted(names)))
    return names


class Attempt:
    """Runs the plugin's steps: one that fails leaves the request as the engine has it."""

    def __init__(self) -> None:
        self._logged: set[type[Exception]] = set()

    def note(self, error: Exception) -> None:
        """Log an error, once for each kind."""
        if type(error) not in self._logged:
            self._logged.add(type(error))
            logger.error(
                "mmhash leaves a request to the engine, and further ones silently", exc_info=error
            )

    def run(self, step: Callable[..., Result], *arguments: Any) -> Result | None:
        """Return what the step returns, or None if it fails."""
        try:
            return step(*arguments)
        except Exception as error:  # noqa: BLE001  (the engine goes on without the plugin)
            self.note(error)
            return None


class Tags:
    """The tags that the guard accepts in place of a hash."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        secrets = filter(None, (text.strip(' "[]') for text in _secrets_text().split(",")))
        self._secrets = [bytes.fromhex(text) for text in secrets]
        self._tenant = os.environ.get(_TENANT) or None

    def hash_of(self, value: Any) -> str | None:
        """Return the key that a tag authenticates as hex; None if the value is no valid tag."""
        if not isinstance(value, str) or not self._secrets:
            return None
        try:
            return open_tag(
                value, engine=self._engine, tenant=self._tenant, secrets=self._secrets
            ).hex()
        except TagError:
            return None

    def hashes_of(self, values: Iterable[Any]) -> list[str] | None:
        """Return the keys of a list of tags; None if one of them is not valid."""
        hashes = [self.hash_of(value) for value in values]
        return None if None in hashes else [one for one in hashes if one is not None]


def _secrets_text() -> str:
    path = os.environ.get(f"{_SECRETS}_FILE")
    if path:
        return ",".join(Path(path).read_text().split())
    return os.environ.get(_SECRETS, "")
