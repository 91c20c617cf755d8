"""Tenants and tags: a request names its tenant; all secrets stay in the settings."""

import time
from typing import NamedTuple

from fastapi import Request

from mmhash import Digest
from mmhash.tags import sign_tag
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings

TENANT_HEADER = "X-Mmhash-Tenant"

# Long enough for a request that waits for its engine.
TAG_TTL_S = 600

TENANT_PARAMETER = {"name": TENANT_HEADER, "in": "header", "schema": {"type": "string"}}
"""The header in the OpenAPI of a request."""


class Tenant(NamedTuple):
    """The tenant of a request, and the 32 secret bytes that key its framing."""

    name: str
    secret: bytes


class Signer(NamedTuple):
    """Signs keys for one engine and one tenant with the newest secret."""

    engine: str
    tenant: str | None
    secret: bytes

    def tag(self, key: Digest) -> str:
        """Return a tag that is valid from now for TAG_TTL_S."""
        expires = int(time.time()) + TAG_TTL_S
        return sign_tag(
            key, engine=self.engine, tenant=self.tenant, expires=expires, secrets=[self.secret]
        )


def resolve_tenant(request: Request, settings: Settings) -> Tenant | None:
    """Return the tenant that the request names, or None if it names none."""
    # At most one header: the middleware refuses requests with duplicates.
    name = request.headers.get(TENANT_HEADER)
    if name is None:
        return None
    secret = settings.tenants.get(name)
    if secret is None:
        raise Problem("unknown-tenant")
    return Tenant(name, bytes.fromhex(secret.get_secret_value()))


def build_signer(settings: Settings, engines: tuple[str, ...], tenant: Tenant | None) -> Signer:
    """Return the signer for a request with `sign`."""
    if not settings.tag_secrets:
        raise Problem("sign-off")
    if len(engines) != 1:
        raise Problem("invalid-query", reason="with sign, engines names exactly one")
    secret = bytes.fromhex(settings.tag_secrets[0].get_secret_value())
    return Signer(engines[0], tenant.name if tenant else None, secret)
