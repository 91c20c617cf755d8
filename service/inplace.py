"""Items that lie in memory of this host: hashed there, never sent.

Only when switched on, and only for a caller who shows that he shares the host: he lays a nonce
into a segment of shared memory, and says in the body what it is and where.
"""

from hmac import compare_digest
from typing import Any

import mmhash
from mmhash.errors import DeviceError, InputError, TransportError
from mmhash.transport import IpcTensor, SharedTensor
from mmhash_service.call import Call
from mmhash_service.problems import Problem
from mmhash_service.schemas import Item, JsonItem, Proof

# What a handle may say that is not the caller's to say.
_NOT_BELIEVED = ("digests",)


def check_proof(call: Call, proof: Proof | None) -> None:
    """See that the caller's nonce is where he says, in memory that we see too."""
    if proof is None:
        raise Problem("other-host")
    if not call.settings.shm and not call.settings.cuda_ipc:
        raise Problem("in-place-off")
    nonce = bytes.fromhex(proof.nonce)
    try:
        with SharedTensor.open(proof.shm) as segment:
            found = segment.nbytes == len(nonce) and compare_digest(bytes(segment.view), nonce)
    except TransportError as error:
        raise Problem("other-host") from error
    if not found:
        raise Problem("other-host")


def hash_in_place(call: Call, item: JsonItem) -> list[Item]:
    """The items of a handle: for a worker, for they may be long."""
    if not (call.settings.shm if item.shm is not None else call.settings.cuda_ipc):
        raise Problem("in-place-off")
    try:
        with _open(item) as feature:
            if (feature.kind, item.dtype, item.shape) != (item.kind, None, None):
                raise Problem("invalid-handle")
            check_count(call, item)
            return [_hash_part(call, name, part) for name, part in _parts(item, feature)]
    except (TransportError, DeviceError) as error:
        raise Problem("invalid-handle") from error


def _open(item: JsonItem) -> SharedTensor | IpcTensor:
    handle = item.shm if item.shm is not None else item.cuda_ipc or {}
    told = {name: value for name, value in handle.items() if name not in _NOT_BELIEVED}
    return SharedTensor.open(told) if item.shm is not None else IpcTensor.open(told)


def _parts(item: JsonItem, feature: Any) -> list[tuple[str | None, Any]]:
    if item.grids is None and item.counts is None:
        return [(item.name, feature)]
    try:
        parts = mmhash.split(feature, grids=item.grids, counts=item.counts)
    except InputError as error:
        raise Problem("invalid-bundle") from error
    return [(item.part_name(number), part) for number, part in enumerate(parts)]


def check_count(call: Call, item: JsonItem) -> None:
    """Refuse a number of items before a list of so many is made."""
    if isinstance(item.counts, int) and item.counts > call.settings.max_items:
        raise Problem("too-many-items")


def _hash_part(call: Call, name: str | None, part: Any) -> Item:
    digest = mmhash.digest(part, algorithm=call.algorithm)
    return call.item(name, part.kind, part.dtype, part.shape, part.nbytes, digest)
