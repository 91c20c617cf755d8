"""Tenants by name: a call says whose it is, the secrets stay in the settings."""

from fastapi import Request

from mmhash_service.problems import Problem
from mmhash_service.settings import Settings

HEADER = "X-Mmhash-Tenant"


def secret_of(request: Request, settings: Settings) -> bytes | None:
    """The 32 secret bytes of the tenant that the call names, or None if it names none."""
    name = request.headers.get(HEADER)
    if name is None:
        return None
    secret = settings.tenants.get(name)
    if secret is None:
        raise Problem("unknown-tenant")
    return bytes.fromhex(secret.get_secret_value())
