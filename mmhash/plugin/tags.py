"""A gateway's tags: some stand for hashes, others vouch for the tenant of a request."""

import json
import os
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from mmhash.digest import Digest
from mmhash.errors import TagError
from mmhash.tags import TENANT_TAG_HEADER, open_tag, tenant_key

# The guard's own settings, as its middleware reads them.
_SECRETS = "MMHASH_GUARD_SECRETS"
_TENANT = "MMHASH_GUARD_TENANT"

# The service's setting `tenants`.
_TENANTS = "MMHASH_TENANTS"

tenant_secret: ContextVar[bytes | None] = ContextVar("tenant_secret", default=None)
"""The secret that keys the names of media in the current request."""


class Tags:
    """The tags that the guard accepts instead of a hash."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        # The list is JSON, or has a comma or, in a file, a line break between secrets.
        listed = _text_of(_SECRETS).replace(",", " ").split()
        secrets = filter(None, (text.strip('"[]') for text in listed))
        self._secrets = [bytes.fromhex(text) for text in secrets]
        self._tenant = os.environ.get(_TENANT) or None
        tenants = json.loads(_text_of(_TENANTS) or "{}")
        self._tenants = {name: bytes.fromhex(secret) for name, secret in tenants.items()}

    @property
    def has_tenants(self) -> bool:
        """True if each tenant's media have names that no other tenant can compute."""
        return bool(self._tenants and self._secrets)

    def secret_of(self, tenant: str, tag: str) -> bytes | None:
        """Return the secret of a tenant, or None if the tag does not vouch for its name."""
        secret = self._tenants.get(tenant)
        is_named = secret is not None and self._open(tag, tenant) == tenant_key(tenant)
        return secret if is_named else None

    def key_of(self, value: Any) -> Digest | None:
        """Return the key that a tag authenticates, or None if the value is not a valid tag."""
        return self._open(value, self._tenant)

    def _open(self, value: Any, tenant: str | None) -> Digest | None:
        if not isinstance(value, str) or not self._secrets:
            return None
        try:
            return open_tag(value, engine=self._engine, tenant=tenant, secrets=self._secrets)
        except TagError:
            return None

    def keys_of(self, values: Iterable[Any]) -> list[Digest]:
        """Return the keys of a list of tags, or no keys if any tag is invalid."""
        keys = [self.key_of(value) for value in values]
        found = [key for key in keys if key is not None]
        return found if len(found) == len(keys) else []


class TenantTags:
    """ASGI middleware that sets the tenant of a request if a tag vouches for the name."""

    def __init__(self, app: Any, tags: Tags) -> None:
        self._app = app
        self._tags = tags

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, with the secret of its tenant."""
        headers = dict(scope.get("headers", ()))
        given = (headers.get(name, b"") for name in (b"x-mmhash-tenant", TENANT_TAG_HEADER))
        tenant_secret.set(self._tags.secret_of(*(value.decode("latin-1") for value in given)))
        await self._app(scope, receive, send)


def _text_of(variable: str) -> str:
    path = os.environ.get(f"{variable}_FILE")
    return Path(path).read_text() if path else os.environ.get(variable, "")
