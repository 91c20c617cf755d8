"""The context of a request that hashes: its options, tenant and resources."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import Request

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash.framing import frame
from mmhash.tags import sign_tag
from mmhash.view import Kind
from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.fetch.fetcher import Fetcher
from mmhash_service.items.hashed import (
    HashedItem,
    RequestedEngine,
    describe,
    names_of,
    parse_engines,
)
from mmhash_service.items.schema import HashQuery
from mmhash_service.limits.capacity import Admission
from mmhash_service.limits.text import header_of
from mmhash_service.limits.threads import PromptPool, ThreadPool
from mmhash_service.memo.memo import CacheStatus, Memo
from mmhash_service.problems.problem import Problem, shown
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings

TENANT_HEADER = "X-Mmhash-Tenant"
_TENANT_HEADER = TENANT_HEADER.lower().encode()

# A request may wait this long for its engine before the engine checks its tags.
TAG_TTL_S = 600

TENANT_PARAMETER = {"name": TENANT_HEADER, "in": "header", "schema": {"type": "string"}}
"""The header in the OpenAPI of a request."""


class Tenant(NamedTuple):
    """The tenant of a request, and the 32 secret bytes that key its framing."""

    name: str
    secret: bytes


class Signer(NamedTuple):
    """Signs keys for one engine and one tenant, with the newest secret."""

    engine: str
    tenant: str | None
    secret: bytes

    def tag(self, key: Digest) -> str:
        """Return a tag that is valid for TAG_TTL_S from now."""
        expires = int(time.time()) + TAG_TTL_S
        return sign_tag(
            key, engine=self.engine, tenant=self.tenant, expires=expires, secrets=[self.secret]
        )


def resolve_tenant(request: Request, settings: Settings) -> Tenant | None:
    """Return the tenant that the request names, or None."""
    # The middleware refuses duplicates, so there is at most one.
    name = header_of(request.scope["headers"], _TENANT_HEADER)
    if name is None:
        return None
    secret = settings.tenants.get(name)
    if secret is None:
        raise Problem("unknown-tenant", reason=f"no tenant is named {shown(name)}")
    return Tenant(name, bytes.fromhex(secret.get_secret_value()))


def build_signer(settings: Settings, engines: Sequence[str], tenant: Tenant | None) -> Signer:
    """Return the signer for a request with `sign`."""
    if not settings.tag_secrets:
        raise Problem("sign-off")
    if len(engines) != 1:
        reason = f"a tag is for one engine, but engines names {len(engines)}"
        raise Problem("invalid-query", reason=reason)
    secret = bytes.fromhex(settings.tag_secrets[0].get_secret_value())
    return Signer(engines[0], tenant.name if tenant else None, secret)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The options of a request, and the resources of its application."""

    algorithm: Algorithm
    pixels: bool
    engines: tuple[RequestedEngine, ...]
    tenant: Tenant | None
    signer: Signer | None
    settings: Settings
    admission: Admission
    work: ThreadPool
    prompts: PromptPool
    decoders: DecoderPool
    memo: Memo
    fetcher: Fetcher
    # True on the Unix socket: its callers may refer to this host's memory.
    is_local: bool = False

    @property
    def tenant_secret(self) -> bytes | None:
        """The secret behind every key of the request, if it names a tenant."""
        return self.tenant.secret if self.tenant else None

    @property
    def fetches(self) -> bool:
        """True if the setting `url_hosts` lets the server fetch media."""
        return bool(self.settings.url_hosts)

    @property
    def space(self) -> bytes:
        """The namespace of the request's entries in the memo."""
        return self.tenant_secret or b""

    def item(  # noqa: PLR0917  (in the order of an item's fields)
        self,
        name: str | None,
        kind: Kind,
        dtype: str,
        shape: tuple[int, ...],
        nbytes: int,
        digest: Digest,
        *,
        extra: bytes = b"",
        orientation: int = 1,
        memo: CacheStatus | None = None,
    ) -> HashedItem:
        """Return the item with this digest, and compute its key."""
        key = frame(kind, dtype, shape, digest, extra, tenant=self.tenant_secret)
        return HashedItem(name, kind, dtype, shape, nbytes, digest, key, orientation, memo)

    def describe(self, item: HashedItem, options: str = "") -> dict[str, Any]:
        """Return the item for a response, with the names and the tag that these options give it."""
        names = names_of(item, self.engines, options)
        return describe(item, names, self.tag(item, options))

    def tag(self, item: HashedItem, options: str = "") -> str | None:
        """Return the item's tag for the request's engine, if the request asks for tags."""
        if self.signer is None:
            return None
        (engine,) = self.engines
        return self.signer.tag(engine.name_item(item.key, options, item.orientation))


def on_unix_socket(request: Request) -> bool:
    """Return True if the request came over a Unix socket, whose address has no port."""
    server = request.scope.get("server")
    return server is not None and server[1] is None


def build_context(
    resources: Resources, request: Request, query: HashQuery, admission: Admission
) -> RequestContext:
    """Build the context of a request from its query and headers."""
    # Read the settings once: a reload may replace them between two reads.
    settings = resources.settings
    tenant = resolve_tenant(request, settings)
    engines = parse_engines(query.engines)
    signer = None
    if query.sign:
        signer = build_signer(settings, [engine.name for engine in engines], tenant)
    return RequestContext(
        algorithm=query.algorithm,
        pixels=query.of == "pixels",
        engines=engines,
        tenant=tenant,
        signer=signer,
        settings=settings,
        admission=admission,
        work=resources.work,
        prompts=resources.prompts,
        decoders=resources.decoders,
        memo=resources.memo,
        fetcher=resources.fetcher,
        is_local=on_unix_socket(request),
    )
