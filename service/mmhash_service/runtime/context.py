"""The context of one request that hashes: its options, its tenant and its resources."""

from dataclasses import dataclass

from fastapi import Request

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash.framing import frame
from mmhash.view import Kind
from mmhash_service.api.schemas.items import HashQuery, Item, ItemKind
from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.engines import RequestedEngine, parse_engines
from mmhash_service.fetch.fetcher import Fetcher
from mmhash_service.items.mapped_hasher import MappedHasher
from mmhash_service.memo.memo import CacheStatus, Memo
from mmhash_service.runtime.capacity import Admission
from mmhash_service.runtime.worker_pool import PromptPool, WorkerPool
from mmhash_service.settings import Settings
from mmhash_service.tenants import Signer, Tenant, build_signer, resolve_tenant


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The options of a request, and the resources of the application that answers it."""

    algorithm: Algorithm
    pixels: bool
    engines: tuple[RequestedEngine, ...]
    tenant: Tenant | None
    signer: Signer | None
    settings: Settings
    admission: Admission
    work: WorkerPool
    prompts: PromptPool
    decoders: DecoderPool
    memo: Memo
    fetcher: Fetcher
    mapped: MappedHasher
    # The namespace of the request's memo entries: empty, or the secret of its tenant.
    space: bytes
    # The query, if it asks for the frames of videos and audio clips.
    recipe: HashQuery | None = None

    @property
    def tenant_secret(self) -> bytes | None:
        """The secret that is in each key of the request, if it names a tenant."""
        return self.tenant.secret if self.tenant else None

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
    ) -> Item:
        """Return the item with the digest: its key, engine fields and tag."""
        key = frame(kind, dtype, shape, digest, extra, tenant=self.tenant_secret)
        return self.named_item(
            name, kind, dtype, shape, nbytes, digest, key, orientation=orientation
        )

    def named_item(  # noqa: PLR0917  (in the order of an item's fields)
        self,
        name: str | None,
        kind: ItemKind,
        dtype: str,
        shape: tuple[int, ...],
        nbytes: int,
        digest: Digest,
        key: Digest,
        memo: CacheStatus | None = None,
        *,
        orientation: int = 1,
    ) -> Item:
        """Return the item with that key: its engine fields and tag."""
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
        if memo is not None:
            item.memo = memo
        if orientation != 1:
            item.exif_orientation = orientation
        self.set_names(item, key)
        return item

    def set_names(self, item: Item, key: Digest, options: str = "") -> None:
        """Set the fields by which engines name an item under these options, and the tag."""
        orientation = item.exif_orientation
        if self.engines:
            item.engines = {
                engine.name: engine.request_fields(key, options, orientation)
                for engine in self.engines
            }
        if self.signer is not None:
            (engine,) = self.engines
            item.tag = self.signer.tag(engine.name_item(key, options, orientation))


def build_context(request: Request, query: HashQuery, admission: Admission) -> RequestContext:
    """Build the context of a request from its query and headers."""
    state = request.app.state
    # All of one request are of the same settings: a reload replaces them at any time.
    settings = state.settings
    tenant = resolve_tenant(request, settings)
    fallback = query.engine_fallback or settings.engine_fallback
    engines = parse_engines(query.engines, fallback)
    names = tuple(engine.name for engine in engines)
    return RequestContext(
        algorithm=query.algorithm,
        pixels=query.of == "pixels",
        engines=engines,
        tenant=tenant,
        signer=build_signer(settings, names, tenant) if query.sign else None,
        settings=settings,
        admission=admission,
        work=state.work,
        prompts=state.prompts,
        decoders=state.decoders,
        memo=state.memo,
        fetcher=state.fetcher,
        mapped=state.mapped,
        space=tenant.secret if tenant is not None else b"",
        recipe=query if query.of == "frames" else None,
    )
