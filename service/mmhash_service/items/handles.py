"""Items in the memory of this host: opened by their handles and hashed in place, never sent.

A handle is accepted only on the Unix socket, whose owner and mode say who may call. Such a caller
is trusted like one in the same process: a wrong handle is an error, and nothing guards against an
owner that changes its memory meanwhile.
"""

from typing import Any

import mmhash
from mmhash.errors import DeviceError, InputError, TransportError
from mmhash.transport import IpcTensor, SharedTensor
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.schema import JsonItem
from mmhash_service.problems.problem import Problem


def hash_handle(context: RequestContext, item: JsonItem) -> list[HashedItem]:
    """Return the items of a handle; run this in a thread."""
    if not context.is_local or (item.cuda_ipc is not None and not context.settings.cuda_ipc):
        raise Problem("in-place-off")
    try:
        with _open(item) as feature:
            if (feature.kind, item.dtype, item.shape) != (item.kind, None, None):
                reason = f"it is that of a {feature.kind}, with the dtype and the shape"
                raise Problem("invalid-handle", reason=reason)
            return [
                context.item(
                    name,
                    part.kind,
                    part.dtype,
                    part.shape,
                    part.nbytes,
                    mmhash.digest(part, algorithm=context.algorithm),
                )
                for name, part in _parts(item, feature)
            ]
    except (TransportError, DeviceError) as error:
        raise Problem("invalid-handle", reason=str(error)) from error


def _open(item: JsonItem) -> SharedTensor | IpcTensor:
    if item.shm is not None:
        return SharedTensor.open(item.shm)
    return IpcTensor.open(item.cuda_ipc)


def _parts(item: JsonItem, feature: Any) -> list[tuple[str | None, Any]]:
    if item.grids is None and item.counts is None:
        return [(item.name, feature)]
    try:
        parts = mmhash.split(feature, grids=item.grids, counts=item.counts)
    except InputError as error:
        raise Problem("invalid-tensor", reason=str(error)) from error
    return [(item.part_name(number), part) for number, part in enumerate(parts)]
