"""Tags instead of hashes: how a gateway names content through the guard."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mmhash.digest import Digest
from mmhash.errors import TagError
from mmhash.tags import open_tag

# The guard's own settings, as its middleware reads them.
_SECRETS = "MMHASH_GUARD_SECRETS"
_TENANT = "MMHASH_GUARD_TENANT"


class Tags:
    """The tags that the guard accepts instead of a hash."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        secrets = filter(None, (text.strip(' "[]') for text in _secrets_text().split(",")))
        self._secrets = [bytes.fromhex(text) for text in secrets]
        self._tenant = os.environ.get(_TENANT) or None

    def key_of(self, value: Any) -> Digest | None:
        """Return the key that a tag authenticates, or None if the value is not a valid tag."""
        if not isinstance(value, str) or not self._secrets:
            return None
        try:
            return open_tag(value, engine=self._engine, tenant=self._tenant, secrets=self._secrets)
        except TagError:
            return None

    def keys_of(self, values: Iterable[Any]) -> list[Digest]:
        """Return the keys of a list of tags, or no keys if any tag is invalid."""
        keys = [self.key_of(value) for value in values]
        found = [key for key in keys if key is not None]
        return found if len(found) == len(keys) else []


def _secrets_text() -> str:
    path = os.environ.get(f"{_SECRETS}_FILE")
    if path:
        return ",".join(Path(path).read_text().split())
    return os.environ.get(_SECRETS, "")
