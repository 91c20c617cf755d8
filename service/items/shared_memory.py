"""Items that lie in memory of this host: hashed there, never sent.

Only when switched on, and only for a caller who shows that he shares the host: he lays a nonce
into a segment of shared memory, and says in the body what it is and where.
"""

from hmac import compare_digest
from typing import Any

import mmhash
from mmhash import Digest
from mmhash.cpu import hash_bytes
from mmhash.errors import DeviceError, InputError, TransportError
from mmhash.transport import IpcTensor
from mmhash.transport.untrusted import UntrustedTensor
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import Item, JsonItem, Proof
from mmhash_service.runtime.context import RequestContext

# Up to this length a segment is copied and hashed here: quicker than to ask another process.
_READ_MAX = 256 << 10

# What a handle may say that is not the caller's to say.
_NOT_BELIEVED = ("digests",)


def check_proof(call: RequestContext, proof: Proof | None) -> None:
    """See that the caller's nonce is where he says, in memory that we see too."""
    if proof is None:
        raise Problem("other-host")
    if not call.settings.shm and not call.settings.cuda_ipc:
        raise Problem("in-place-off")
    nonce = bytes.fromhex(proof.nonce)
    try:
        with UntrustedTensor.open(proof.shm) as segment:
            found = segment.nbytes == len(nonce) and compare_digest(segment.read(), nonce)
    except TransportError as error:
        raise Problem("other-host") from error
    if not found:
        raise Problem("other-host")


def hash_shared(call: RequestContext, item: JsonItem, total: int) -> list[Item]:
    """The items of a handle, of `total` bytes in the whole body: for a worker thread."""
    if not (call.settings.shm if item.shm is not None else call.settings.cuda_ipc):
        raise Problem("in-place-off")
    try:
        with _open(item) as feature:
            if (feature.kind, item.dtype, item.shape) != (item.kind, None, None):
                raise Problem("invalid-handle")
            check_count(call, item)
            feature.verify()
            if total > call.settings.max_body_bytes:
                raise Problem("body-too-large")
            named = _parts(item, feature)
            digests = _hash_parts(call, feature, [part for _, part in named])
            return [
                call.item(name, part.kind, part.dtype, part.shape, part.nbytes, digest)
                for (name, part), digest in zip(named, digests, strict=True)
            ]
    except (TransportError, DeviceError) as error:
        raise Problem("invalid-handle") from error


def nbytes_of(items: list[JsonItem]) -> int:
    """The bytes that all handles of a body speak of: one slice may be named many times."""
    sizes = [(item.shm or item.cuda_ipc or {}).get("nbytes") for item in items]
    return sum(size for size in sizes if type(size) is int and size > 0)


def _open(item: JsonItem) -> UntrustedTensor | IpcTensor:
    handle = item.shm if item.shm is not None else item.cuda_ipc or {}
    told = {name: value for name, value in handle.items() if name not in _NOT_BELIEVED}
    return UntrustedTensor.open(told) if item.shm is not None else IpcTensor.open(told)


def _parts(item: JsonItem, feature: Any) -> list[tuple[str | None, Any]]:
    if item.grids is None and item.counts is None:
        return [(item.name, feature)]
    try:
        parts = mmhash.split(feature, grids=item.grids, counts=item.counts)
    except InputError as error:
        raise Problem("invalid-bundle") from error
    return [(item.part_name(number), part) for number, part in enumerate(parts)]


def check_count(call: RequestContext, item: JsonItem) -> None:
    """Refuse a number of items before a list of so many is made."""
    if isinstance(item.counts, int) and item.counts > call.settings.max_items:
        raise Problem("too-many-items")


def _hash_parts(
    call: RequestContext, feature: UntrustedTensor | IpcTensor, parts: list[Any]
) -> list[Digest]:
    if isinstance(feature, IpcTensor):
        return [mmhash.digest(part, algorithm=call.algorithm) for part in parts]
    if feature.nbytes <= _READ_MAX:
        whole = memoryview(feature.read())
        starts = [part.start - feature.start for part in parts]
        return [
            hash_bytes(whole[start : start + part.nbytes], call.algorithm)
            for start, part in zip(starts, parts, strict=True)
        ]
    ranges = [(part.start, part.nbytes) for part in parts]
    with feature.reading() as file:
        return call.mapped.digests(file, ranges, call.algorithm, keep=feature.is_lent)
