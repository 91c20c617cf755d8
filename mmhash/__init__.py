"""Cache keys for multimodal inputs: equal on the CPU, on the GPU, in a gateway and in an engine."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmhash import compile as compile  # noqa: A004  (the design's name)
    from mmhash import engines as engines
    from mmhash import kvindex as kvindex
    from mmhash import prompts as prompts
    from mmhash import ray as ray
    from mmhash import transport as transport
    from mmhash.client import AsyncClient as AsyncClient
    from mmhash.client import Client as Client
    from mmhash.cpu import Hasher as Hasher
    from mmhash.digest import Digest as Digest
    from mmhash.engines import pad_values as pad_values
    from mmhash.engines import request_fields as request_fields
    from mmhash.errors import ClosedError as ClosedError
    from mmhash.errors import DeviceError as DeviceError
    from mmhash.errors import InputError as InputError
    from mmhash.errors import InputTypeError as InputTypeError
    from mmhash.errors import InputValueError as InputValueError
    from mmhash.errors import LimitError as LimitError
    from mmhash.errors import MMHashError as MMHashError
    from mmhash.errors import ServiceError as ServiceError
    from mmhash.errors import TagError as TagError
    from mmhash.errors import TransportError as TransportError
    from mmhash.executor import AsyncHasher as AsyncHasher
    from mmhash.hashing import PendingKeys as PendingKeys
    from mmhash.hashing import digest as digest
    from mmhash.hashing import key as key
    from mmhash.hashing import keys as keys
    from mmhash.io.file_keys import digest_file as digest_file
    from mmhash.io.file_keys import key_file as key_file
    from mmhash.media import audio as audio
    from mmhash.media import video as video
    from mmhash.split import split as split
    from mmhash.tags import sign_tag as sign_tag
    from mmhash.tags import verify_tag as verify_tag

__version__ = "0.1.0"

# Imported at first use: numpy and the hash functions dominate the import time.
_MODULES = {
    __name__: (
        "client",
        "compile",
        "engines",
        "errors",
        "executor",
        "kvindex",
        "prompts",
        "ray",
        "transport",
    ),
    "mmhash.client": ("AsyncClient", "Client"),
    "mmhash.cpu": ("Hasher",),
    "mmhash.digest": ("Digest",),
    "mmhash.engines": ("pad_values", "request_fields"),
    "mmhash.errors": (
        "ClosedError",
        "DeviceError",
        "InputError",
        "InputTypeError",
        "InputValueError",
        "LimitError",
        "MMHashError",
        "ServiceError",
        "TagError",
        "TransportError",
    ),
    "mmhash.executor": ("AsyncHasher",),
    "mmhash.hashing": ("PendingKeys", "digest", "key", "keys"),
    "mmhash.io.file_keys": ("digest_file", "key_file"),
    "mmhash.media": ("audio", "video"),
    "mmhash.split": ("split",),
    "mmhash.tags": ("sign_tag", "verify_tag"),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [name for name, module in _LAZY.items() if module != __name__]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _LAZY[name] == __name__:
        return import_module(f"{__name__}.{name}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(
        {*__all__, *_MODULES[__name__], *(name for name in globals() if name[:2] == "__")}
    )


class _Package(ModuleType):
    """This package, where `mmhash.digest` and `mmhash.split` are functions, not modules."""

    def __setattr__(self, name: str, value: object) -> None:
        # The import system sets each submodule as an attribute of its package.
        if not (name in {"digest", "split"} and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
