"""Hashes of the engine's items, computed in the tokenizer instead of the scheduler."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mmhash.engines import checks
from mmhash.engines.sglang.pads import pad_values
from mmhash.engines.sglang.releases import LATEST, RELEASES
from mmhash.errors import InputError, InputTypeError
from mmhash.torch_tensor import is_tensor

if TYPE_CHECKING:
    from mmhash.executor import AsyncHasher


_FIELDS = ("hash", "feature", "precomputed_embeddings")


async def precompute(
    items: Sequence[Any],
    hasher: "AsyncHasher",
    *,
    tenant: bytes | None = None,
    version: str = LATEST,
) -> None:
    """Set the hash and pad values of each of the engine's multimodal items, from its key.

    They equal those of `mm_hash(key)` in a request's `mm_hashes`. An item with pad values is left
    unchanged; an item with a hash gets only these. The engine hashes items that hold a handle of
    its own or have no key.
    """
    RELEASES.recipe(version)
    for item in checks.listed("items", items):
        if not all(hasattr(item, name) for name in _FIELDS):
            raise InputTypeError(f"an item of SGLang has {', '.join(_FIELDS)}")
    if not hasattr(type(hasher), "keys"):
        raise InputTypeError(f"hasher is an AsyncHasher, not {type(hasher).__name__}")
    missing = [item for item in items if getattr(item, "pad_value", None) is None]
    for item in missing:
        if item.hash is not None:
            _set_hash(item, item.hash, version)
    bare = [item for item in missing if item.hash is None and _is_readable(_content(item))]
    contents = [_content(item) for item in bare]
    keys = await hasher.keys(contents, tenant=tenant, return_errors=True)
    for item, key in zip(bare, keys, strict=True):
        if isinstance(key, Exception):
            if not isinstance(key, InputError):
                raise key
        elif item.pad_value is None:
            _set_hash(item, key.u64, version)


def _content(item: Any) -> Any:
    return item.feature if item.feature is not None else item.precomputed_embeddings


def _is_readable(content: Any) -> bool:
    """Return True if it is an array, a tensor, one of our handles, or a nonempty list of these."""
    if isinstance(content, (list, tuple)):
        return bool(content) and all(map(_is_readable, content))
    return (
        is_tensor(content)
        or isinstance(content, np.ndarray)
        or (hasattr(content, "__mmhash_view__"))
    )


def _set_hash(item: Any, number: int, version: str) -> None:
    if hasattr(item, "set_hash"):
        item.set_hash(number)
        return
    pads = pad_values(number, version=version)
    item.hash, item.pad_value = number, pads[0]
    if len(pads) > 1:
        item.pad_values = tuple(pads)
