"""Frames of spec v1: the metadata that a key covers besides the content (docs/spec.md)."""

import struct
from functools import lru_cache

from blake3 import blake3

from mmhash.algorithms import DIGEST_SIZE, Algorithm
from mmhash.digest import Digest, unchecked_digest
from mmhash.errors import InputTypeError, InputValueError
from mmhash.fields import field

SPEC_VERSION = 1
TENANT_SIZE = 32

KEY_CONTEXT = "mmhash 2026-11-21 key v1"
TENANT_CONTEXT = "mmhash 2026-11-21 tenant v1"


_NO_EXTRA = field(b"")

# Each frame copies this state, which is faster than deriving the context's key again.
_KEY_STATE = blake3(derive_key_context=KEY_CONTEXT)


@lru_cache(maxsize=1024)  # items of a list often have the same dtype and shape
def _before_digest(kind: str, dtype: str, shape: tuple[int, ...], algorithm: Algorithm) -> bytes:
    """Return the first five fields of a preimage, and the length of the digest."""
    fields = (
        b"%d" % SPEC_VERSION,
        kind.encode(),
        dtype.encode(),
        struct.pack(f"<{len(shape)}Q", *shape),
        algorithm.encode(),
    )
    return b"".join(map(field, fields)) + DIGEST_SIZE[algorithm].to_bytes(8, "little")


@lru_cache(maxsize=1024)
def preimage_template(
    kind: str, dtype: str, shape: tuple[int, ...], algorithm: Algorithm
) -> tuple[bytes, int]:
    """Return a preimage with zeros for the digest and no extra, and the digest's offset."""
    before = _before_digest(kind, dtype, shape, algorithm)
    return before + bytes(DIGEST_SIZE[algorithm]) + _NO_EXTRA, len(before)


def frame(
    kind: str,
    dtype: str,
    shape: tuple[int, ...],
    digest: Digest,
    extra: bytes = b"",
    *,
    tenant: bytes | None = None,
) -> Digest:
    """Return the key of an item: its content's digest bound to its metadata and tenant."""
    content = frame_raw(kind, dtype, shape, digest.algorithm, digest.bytes, extra, tenant)
    return unchecked_digest("blake3", content)


def frame_raw(  # noqa: PLR0917  (like frame(); keywords would be slower)
    kind: str,
    dtype: str,
    shape: tuple[int, ...],
    algorithm: Algorithm,
    content: bytes,
    extra: bytes,
    tenant: bytes | None,
) -> bytes:
    """Return the bytes of the key, given the algorithm and the bytes of the digest."""
    framed = _before_digest(kind, dtype, shape, algorithm) + content
    state = (_KEY_STATE if tenant is None else _key_state(tenant)).copy()
    state.update(framed + (field(extra) if extra else _NO_EXTRA))
    return state.digest()


def frame_template(template: tuple[bytes, int], content: bytes, tenant: bytes | None) -> bytes:
    """Return the bytes of the key, given a template and the bytes of a digest."""
    preimage, offset = template
    state = _key_state(tenant).copy()
    state.update(preimage[:offset] + content + _NO_EXTRA)
    return state.digest()


@lru_cache(maxsize=64)  # deriving a tenant's key takes as long as framing
def _key_state(tenant: bytes | None) -> blake3:
    """Return the hash state to copy for each preimage."""
    return _KEY_STATE if tenant is None else blake3(key=tenant_key(tenant))


def check_tenant(tenant: bytes | None) -> None:
    """Raise unless the argument is None or the secret bytes of a tenant."""
    if tenant is None:
        return
    if not isinstance(tenant, bytes):
        raise InputTypeError(f"tenant must be bytes or None, not {type(tenant).__name__}")
    if len(tenant) != TENANT_SIZE:
        raise InputValueError(f"tenant must be {TENANT_SIZE} secret bytes, not {len(tenant)}")


def tenant_key(tenant: bytes) -> bytes:
    """Derive the key that hashes a tenant's frames."""
    check_tenant(tenant)
    return blake3(tenant, derive_key_context=TENANT_CONTEXT).digest()
