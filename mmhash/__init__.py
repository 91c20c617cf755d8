"""One key for one content: on the CPU, on the GPU, in the gateway and in the engine."""

from importlib import import_module
from typing import Any

from mmhash.cpu import Hasher
from mmhash.digest import Digest
from mmhash.errors import (
    DeviceError,
    InputError,
    InputTypeError,
    InputValueError,
    LimitError,
    MMHashError,
    TransportError,
)
from mmhash.hashing import PendingKeys, digest, key, keys
from mmhash.split import split

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
    "TransportError",
    "digest",
    "key",
    "keys",
    "split",
]


# Imported when first asked for: a plain hash needs none of them, and they take longer than it does.
_LATER = {
    "AsyncHasher": "mmhash.executor",
    "LazyKey": "mmhash.executor",
    "engines": "mmhash.engines",
    "transport": "mmhash.transport",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LATER[name])
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)
