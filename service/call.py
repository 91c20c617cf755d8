"""One call of `POST /hash`: what it asks, for whom, and with what room."""

from dataclasses import dataclass

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash.engines import spell
from mmhash.framing import frame
from mmhash.view import Kind
from mmhash_service.limits import Admission
from mmhash_service.schemas import Item
from mmhash_service.settings import Settings
from mmhash_service.work import Work


@dataclass(frozen=True, slots=True)
class Call:
    """What all readers of a body need to know."""

    algorithm: Algorithm
    pixels: bool
    engines: tuple[str, ...]
    tenant: bytes | None
    settings: Settings
    admission: Admission
    work: Work

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
        key = frame(kind, dtype, shape, digest, extra, tenant=self.tenant)
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
        return item
