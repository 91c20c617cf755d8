"""One call of `POST /hash`: what it asks, for whom, and with what room."""

from dataclasses import dataclass

from fastapi import Request

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash.engines import spell
from mmhash.framing import frame
from mmhash.view import Kind
from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.engines import parse_engines
from mmhash_service.fetch.fetcher import Fetcher
from mmhash_service.limits import Admission
from mmhash_service.mapped import MappedHasher
from mmhash_service.memo.memo import Memo
from mmhash_service.schemas import HashQuery, Item
from mmhash_service.settings import Settings
from mmhash_service.signing import Signer, signer_of
from mmhash_service.tenants import Tenant, tenant_of
from mmhash_service.work import Work


@dataclass(frozen=True, slots=True)
class Call:
    """What all readers of a body need to know."""

    algorithm: Algorithm
    pixels: bool
    engines: tuple[str, ...]
    tenant: Tenant | None
    signer: Signer | None
    settings: Settings
    admission: Admission
    work: Work
    decoders: DecoderPool
    memo: Memo
    fetcher: Fetcher
    mapped: MappedHasher
    # Whose entries of the memo the call sees: all of one space are one to it.
    space: bytes

    def item(  # noqa: PLR0917  (in the order of an answer)
        self,
        name: str | None,
        kind: Kind,
        dtype: str,
        shape: tuple[int, ...],
        nbytes: int,
        digest: Digest,
        *,
        extra: bytes = b"",
    ) -> Item:
        """The answer for content of that digest."""
        secret = self.tenant.secret if self.tenant else None
        key = frame(kind, dtype, shape, digest, extra, tenant=secret)
        item = Item(
            name=name,
            kind=kind,
            dtype=dtype,
            shape=shape,
            nbytes=nbytes,
            algorithm=digest.algorithm,
            digest=digest.hex(),
            key=key.hex(),
        )
        if self.engines:
            item.engines = {engine: spell(key, engine) for engine in self.engines}
        if self.signer is not None:
            item.tag = self.signer.tag(key)
        return item


def call_of(request: Request, query: HashQuery, admission: Admission) -> Call:
    """What the request asks, with the means of the application that answers it."""
    state = request.app.state
    tenant = tenant_of(request, state.settings)
    is_private = tenant is not None and tenant.name in state.settings.private_tenants
    engines = parse_engines(query.engines)
    return Call(
        algorithm=query.algorithm,
        pixels=query.of == "pixels",
        engines=engines,
        tenant=tenant,
        signer=signer_of(state.settings, engines, tenant) if query.sign else None,
        settings=state.settings,
        admission=admission,
        work=state.work,
        decoders=state.decoders,
        memo=state.memo,
        fetcher=state.fetcher,
        mapped=state.mapped,
        space=tenant.secret if tenant is not None and is_private else b"",
    )
