"""Items in the memory of this host: hashed in place, never sent.

This must be enabled in the settings, and the caller must prove that it runs on the same host: it
writes a nonce to a segment of shared memory, and sends the nonce and the segment's handle.
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
from mmhash_service.api.schemas.items import Item, JsonItem, Proof
from mmhash_service.items.mapped_hasher import HasherEndedError
from mmhash_service.runtime.context import RequestContext

# Shorter segments are copied and hashed in this process, which is faster than another process.
_READ_MAX = 256 << 10

# Fields of a handle that the server ignores: the caller could forge them.
_IGNORED_FIELDS = ("digests",)


def check_proof(context: RequestContext, proof: Proof | None) -> None:
    """Check that the caller's nonce is in shared memory that this process can read."""
    if proof is None:
        raise Problem("other-host")
    if not context.settings.shm and not context.settings.cuda_ipc:
        raise Problem("in-place-off")
    nonce = bytes.fromhex(proof.nonce)
    try:
        with UntrustedTensor.open(proof.shm) as segment:
            is_same_host = segment.nbytes == len(nonce) and compare_digest(segment.read(), nonce)
    except TransportError as error:
        raise Problem("other-host") from error
    if not is_same_host:
        raise Problem("other-host")


def hash_shared(context: RequestContext, item: JsonItem, total: int) -> list[Item]:
    """Return the items of a handle; run this in a worker thread.

    `total` is the sum of the bytes of all handles in the body.
    """
    if not (context.settings.shm if item.shm is not None else context.settings.cuda_ipc):
        raise Problem("in-place-off")
    try:
        with _open(item) as feature:
            if (feature.kind, item.dtype, item.shape) != (item.kind, None, None):
                raise Problem("invalid-handle")
            feature.verify()
            if total > context.settings.max_body_bytes:
                raise Problem("body-too-large")
            named = _parts(item, feature)
            digests = _hash_parts(context, feature, [part for _, part in named])
            return [
                context.item(name, part.kind, part.dtype, part.shape, part.nbytes, digest)
                for (name, part), digest in zip(named, digests, strict=True)
            ]
    except (TransportError, DeviceError) as error:
        raise Problem("invalid-handle") from error


def nbytes_of(items: list[JsonItem]) -> int:
    """Return the sum of the bytes of all handles of a body, which may repeat a slice."""
    sizes = [(item.shm or item.cuda_ipc or {}).get("nbytes") for item in items]
    return sum(size for size in sizes if type(size) is int and size > 0)


def _open(item: JsonItem) -> UntrustedTensor | IpcTensor:
    handle = item.shm if item.shm is not None else item.cuda_ipc or {}
    used = {name: value for name, value in handle.items() if name not in _IGNORED_FIELDS}
    return UntrustedTensor.open(used) if item.shm is not None else IpcTensor.open(used)


def _parts(item: JsonItem, feature: Any) -> list[tuple[str | None, Any]]:
    if item.grids is None and item.counts is None:
        return [(item.name, feature)]
    try:
        parts = mmhash.split(feature, grids=item.grids, counts=item.counts)
    except InputError as error:
        raise Problem("invalid-tensor") from error
    return [(item.part_name(number), part) for number, part in enumerate(parts)]


def _hash_parts(
    context: RequestContext, feature: UntrustedTensor | IpcTensor, parts: list[Any]
) -> list[Digest]:
    if isinstance(feature, IpcTensor):
        return [mmhash.digest(part, algorithm=context.algorithm) for part in parts]
    if feature.nbytes <= _READ_MAX:
        whole = memoryview(feature.read())
        starts = [part.start - feature.start for part in parts]
        return [
            hash_bytes(whole[start : start + part.nbytes], context.algorithm)
            for start, part in zip(starts, parts, strict=True)
        ]
    ranges = [(part.start, part.nbytes) for part in parts]
    try:
        return _hash_mapped(context, feature, ranges)
    except HasherEndedError:
        # If the segment was truncated, this says so. Otherwise something else killed the process,
        # such as a host without memory, and the item is hashed by another.
        return _hash_mapped(context, feature, ranges)


def _hash_mapped(
    context: RequestContext, feature: UntrustedTensor, ranges: list[tuple[int, int]]
) -> list[Digest]:
    with feature.reading() as file:
        return context.mapped.digests(file, ranges, context.algorithm, keep=feature.is_lent)
