"""Cache keys for multimodal inputs: equal on the CPU, on the GPU, in a gateway and in an engine."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mmhash.cpu import Hasher
from mmhash.digest import Digest
from mmhash.errors import (
    DeviceError,
    InputError,
    InputTypeError,
    InputValueError,
    LimitError,
    MMHashError,
    ServiceError,
    TagError,
    TransportError,
)
from mmhash.hashing import PendingKeys, digest, key, keys
from mmhash.split import split

if TYPE_CHECKING:
    from mmhash import compile as compile  # noqa: A004  (the design's name)
    from mmhash import engines as engines
    from mmhash import ray as ray
    from mmhash import transport as transport
    from mmhash.client import AsyncClient as AsyncClient
    from mmhash.client import Client as Client
    from mmhash.executor import AsyncHasher as AsyncHasher
    from mmhash.executor import LazyKey as LazyKey
    from mmhash.media import audio as audio
    from mmhash.media import video as video
    from mmhash.tags import sign_tag as sign_tag
    from mmhash.tags import verify_tag as verify_tag

__version__ = "0.1.0"

__all__ = [
    "DeviceError",
    "Digest",
    "Hasher",
    "InputError",
    "InputTypeError",
    "InputValueError",
    "LimitError",
    "MMHashError",
    "PendingKeys",
    "ServiceError",
    "TagError",
    "TransportError",
    "digest",
    "key",
    "keys",
    "split",
]


# Imported at first use: a plain hash needs none of them, and importing them takes longer than it.
_LAZY = {
    "AsyncClient": "mmhash.client",
    "AsyncHasher": "mmhash.executor",
    "Client": "mmhash.client",
    "LazyKey": "mmhash.executor",
    "audio": "mmhash.media",
    "compile": "mmhash.compile",
    "engines": "mmhash.engines",
    "ray": "mmhash.ray",
    "sign_tag": "mmhash.tags",
    "transport": "mmhash.transport",
    "verify_tag": "mmhash.tags",
    "video": "mmhash.media",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)
