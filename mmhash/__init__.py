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


def __getattr__(name: str) -> Any:
    """Import `mmhash.engines` when it is first asked for: it takes half as long as all the rest."""
    if name == "engines":
        return import_module("mmhash.engines")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
