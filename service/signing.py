"""Tags for the keys that a call gives out."""

import time
from typing import NamedTuple

from mmhash import Digest
from mmhash.tags import sign_tag
from mmhash_service.api.problems import Problem
from mmhash_service.settings import Settings
from mmhash_service.tenants import Tenant


class Signer(NamedTuple):
    """Signs for one engine and one tenant, with the newest of the secrets."""

    engine: str
    tenant: str | None
    secret: bytes
    ttl_s: int

    def tag(self, key: Digest) -> str:
        """A tag that holds from now on, as long as the settings say."""
        expires = int(time.time()) + self.ttl_s
        return sign_tag(
            key, engine=self.engine, tenant=self.tenant, expires=expires, secrets=[self.secret]
        )


def build_signer(settings: Settings, engines: tuple[str, ...], tenant: Tenant | None) -> Signer:
    """What signs for a call that wants tags."""
    if not settings.tag_secrets:
        raise Problem("sign-off")
    if len(engines) != 1:
        raise Problem("sign-engine")
    secret = bytes.fromhex(settings.tag_secrets[0].get_secret_value())
    return Signer(engines[0], tenant.name if tenant else None, secret, settings.tag_ttl_s)
