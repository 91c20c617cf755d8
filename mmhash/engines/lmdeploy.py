"""LMDeploy's content hash: SHA-256 over an item's features, metadata and positions.

It binds a block of LMDeploy's prefix cache to the items in it. No request carries it: the engine
computes it from what its processor made.
"""

import enum
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from mmhash.digest import Digest
from mmhash.engines import checks
from mmhash.engines.engine import Engine, Step, hash_field
from mmhash.engines.releases import Range, Releases
from mmhash.errors import InputTypeError, InputValueError
from mmhash.memory import in_c_order
from mmhash.torch_tensor import is_tensor
from mmhash.view import view_of

# One recipe so far, read in the wheels of 0.14.0, 0.15.0, 0.17.0 and 0.18.0; 0.13.0 has none.
RELEASES: Releases[None] = Releases("lmdeploy", Range("0.14.0", "0.18.0", None))
LATEST = RELEASES.latest

# The engine hashes the repr() of any other object, which for most holds an address.
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


@checks.readable("the item")
def content_hash(
    data: Any, meta: Any = None, mrope_pos_ids: Any = None, *, version: str = LATEST
) -> str:
    """Return the content hash of one item, as 64 hex digits.

    `data` is the processor's tensor, or a list of them; `meta` is the item's metadata, a dict or
    None; `mrope_pos_ids` is the array of Qwen-VL's positions, or None.
    """
    RELEASES.recipe(version)
    hasher = hashlib.sha256()
    for value in (data, meta, mrope_pos_ids):
        _update(hasher, value)
    return hasher.hexdigest()


def _update(hasher: "hashlib._Hash", value: Any) -> None:
    """Hash one value, led by its type; a container's values follow in brackets."""
    if is_tensor(value):
        _update_tensor(hasher, value)
    elif isinstance(value, np.ndarray):
        _update_array(hasher, value)
    elif isinstance(value, dict):
        hasher.update(b"dict:{")
        for name in sorted(value, key=_checked_repr):
            _update(hasher, name)
            hasher.update(b":")
            _update(hasher, value[name])
            hasher.update(b",")
        hasher.update(b"}")
    elif isinstance(value, (list, tuple)):
        hasher.update(f"{type(value).__name__}:[".encode())
        for entry in value:
            _update(hasher, entry)
            hasher.update(b",")
        hasher.update(b"]")
    elif isinstance(value, enum.Enum):
        _update(hasher, value.value)
    else:
        hasher.update(f"{type(value).__name__}:{_checked_repr(value)}".encode())


def _update_tensor(hasher: "hashlib._Hash", tensor: Any) -> None:
    if tensor.ndim == 0 and tensor.element_size() != 1:
        raise InputValueError("lmdeploy fails on a tensor of no dimensions: give it one")
    view = view_of(tensor)
    hasher.update(f"tensor:torch.{view.dtype}:{view.shape}:".encode())
    hasher.update(view.on_host())


def _update_array(hasher: "hashlib._Hash", array: np.ndarray[Any, Any]) -> None:
    if array.dtype.hasobject:
        raise InputTypeError("an array of objects has no bytes of its own: give it a plain dtype")
    array = in_c_order(array)  # as in the engine, no dimensions become one
    hasher.update(f"ndarray:{array.dtype}:{array.shape}:".encode())
    if array.size:
        hasher.update(array.reshape(-1).view(np.uint8).data)


def _checked_repr(value: Any) -> str:
    if type(value) not in _PLAIN:
        raise InputTypeError(
            f"lmdeploy hashes the repr() of a {type(value).__name__}, which may differ in each "
            "process: give plain values, arrays, tensors, lists and dicts"
        )
    return checks.text("a value", repr(value))


def _explain(key: Digest, version: str) -> Iterator[Step]:
    del key, version
    yield "LMDeploy takes the key", "in no request: it hashes what its processor made"
    yield "compute that hash by", "mmhash.engines.lmdeploy.content_hash(data, meta, mrope_pos_ids)"


ENGINE = Engine(
    name="lmdeploy",
    title="LMDeploy",
    releases=RELEASES,
    explain=_explain,
    hash_fields=(hash_field("0.14.0 to 0.18.0", "any", "none", "see below"),),
)
