"""One key for one content: on the CPU, on the GPU, in the gateway and in the engine."""

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
from mmhash.hashing import digest, key, keys
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
    "TransportError",
    "digest",
    "key",
    "keys",
    "split",
]
