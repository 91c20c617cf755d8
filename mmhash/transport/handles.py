"""Handles: dicts of valid JSON, checked field by field before anything is mapped."""

from collections.abc import Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mmhash.dtypes import ITEM_SIZE
from mmhash.errors import TransportError
from mmhash.transport.segments import NAME

VERSION = 1
_LIMIT = 1 << 63

Transport = Literal["shm", "cuda_ipc"]


class Grant(NamedTuple):
    """A lease: the ledger's segment, the slot in the ledger, and the slot's generation."""

    name: str
    slot: int
    generation: int


class Handle(NamedTuple):
    """A parsed handle. Plain bytes have no dtype or shape; slices of GPU memory have no name."""

    transport: Transport
    name: str
    offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    lease: Grant | None

    def document(self) -> dict[str, Any]:
        """Return the handle as JSON."""
        payload: dict[str, Any] = {"version": VERSION, "transport": self.transport, "host": host()}
        if self.name:
            payload["name"] = self.name
        payload |= {"offset": self.offset, "nbytes": self.nbytes}
        if self.dtype:
            payload |= {"dtype": self.dtype, "shape": list(self.shape)}
        if self.lease is not None:
            payload["lease"] = self.lease._asdict()
        return payload


@cache
def host() -> str:
    """Return the boot id of this host, which its containers share."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def parse(document: object, transport: Transport) -> Handle:
    """Parse a handle of one transport; raise TransportError if a field is invalid."""
    location = {"name"} if transport == "shm" else {"lease", "dtype", "shape"}
    payload = _fields(
        document,
        "a handle",
        required={"offset", "nbytes", *location},
        optional={"version", "transport", "host", "dtype", "shape", "lease"},
    )
    if "version" in payload and _natural(payload, "version") != VERSION:
        raise TransportError(
            f"the handle has version {payload['version']}, but this library reads version {VERSION}"
        )
    if payload.get("transport", transport) != transport:
        raise TransportError(f"the handle's transport must be {transport}")
    if payload.get("host", host()) != host():
        raise TransportError(
            "the handle comes from another host, or from before this host's last boot"
        )
    offset, nbytes = _natural(payload, "offset"), _natural(payload, "nbytes")
    if offset + nbytes >= _LIMIT:
        raise TransportError("a handle's offset and nbytes exceed the address space")
    dtype, shape = _dtype_and_shape(payload, nbytes)
    return Handle(
        transport,
        _name(payload) if transport == "shm" else "",
        offset,
        nbytes,
        dtype,
        shape,
        _lease(payload["lease"]) if "lease" in payload else None,
    )


def _fields(
    document: object, what: str, *, required: set[str], optional: set[str]
) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise TransportError(f"{what} must be a dict, not a {type(document).__name__}")
    missing = required - document.keys()
    if missing:
        raise TransportError(f"{what} has no {min(missing)}")
    if document.keys() - required - optional:
        raise TransportError(f"{what} has unknown fields")
    return document


def _natural(payload: Mapping[str, Any], name: str, limit: int = _LIMIT) -> int:
    return _bounded(payload[name], f"a handle's {name}", limit)


def _bounded(value: object, what: str, limit: int = _LIMIT) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise TransportError(f"{what} must be a whole number from 0 to {limit - 1}")
    return value


def _name(payload: Mapping[str, Any]) -> str:
    name = payload["name"]
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise TransportError("a handle's name must be the name of a segment")
    return name


def _dtype_and_shape(payload: Mapping[str, Any], nbytes: int) -> tuple[str, tuple[int, ...]]:
    if "dtype" not in payload and "shape" not in payload:
        return "", ()
    dtype, shape = payload.get("dtype"), payload.get("shape")
    if not isinstance(dtype, str) or dtype not in ITEM_SIZE:
        raise TransportError("a handle's dtype must be a dtype of the spec")
    if not isinstance(shape, list):
        raise TransportError("a handle's shape must be a list of numbers")
    axes = tuple(_bounded(axis, "an axis of a handle's shape") for axis in shape)
    if prod(axes) * ITEM_SIZE[dtype] != nbytes:
        raise TransportError("a handle's dtype and shape do not add up to its nbytes")
    return dtype, axes


def _lease(value: object) -> Grant:
    payload = _fields(value, "a lease", required={"name", "slot", "generation"}, optional=set())
    slot, generation = _natural(payload, "slot", 1 << 32), _natural(payload, "generation", 1 << 32)
    if generation == 0:
        raise TransportError("a lease's generation must be at least 1")
    return Grant(_name(payload), slot, generation)
