"""Tenants by name: a call says whose it is, the secrets stay in the settings."""

from typing import NamedTuple

from fastapi import Request

from mmhash_service.api.problems import Problem
from mmhash_service.settings import Settings

HEADER = "X-Mmhash-Tenant"


class Tenant(NamedTuple):
    """Whose a call is, and the 32 secret bytes that key what is his."""

    name: str
    secret: bytes


def resolve_tenant(request: Request, settings: Settings) -> Tenant | None:
    """The tenant that the call names, or None if it names none."""
    name = request.headers.get(HEADER)  # there is one: two are refused before any is believed
    if name is None:
        return None
    secret = settings.tenants.get(name)
    if secret is None:
        raise Problem("unknown-tenant")
    return Tenant(name, bytes.fromhex(secret.get_secret_value()))
