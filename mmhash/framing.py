"""Spec v1 of keys: what is hashed beside the content, and how it is delimited (docs/spec.md)."""

import struct

from blake3 import blake3

from mmhash.digest import DIGEST_SIZE, Algorithm, Digest
from mmhash.errors import InputTypeError, InputValueError

SPEC_VERSION = 1
TENANT_SIZE = 32

KEY_CONTEXT = "mmhash 2026-11-21 key v1"
TENANT_CONTEXT = "mmhash 2026-11-21 tenant v1"


def field(value: bytes) -> bytes:
    """`value` behind its length: no two sequences of fields give the same bytes."""
    return len(value).to_bytes(8, "little") + value


def preimage(
    kind: str, dtype: str, shape: tuple[int, ...], digest: Digest, extra: bytes = b""
) -> bytes:
    """What is hashed to a key: seven fields."""
    return b"".join(
        map(
            field,
            (
                b"%d" % SPEC_VERSION,
                kind.encode(),
                dtype.encode(),
                struct.pack(f"<{len(shape)}Q", *shape),
                digest.algorithm.encode(),
                digest.bytes,
                extra,
            ),
        )
    )


def preimage_template(
    kind: str, dtype: str, shape: tuple[int, ...], algorithm: Algorithm
) -> tuple[bytes, int]:
    """A preimage whose digest is still to be filled in, and where; of an item without an extra."""
    size = DIGEST_SIZE[algorithm]
    made = preimage(kind, dtype, shape, Digest(algorithm, bytes(size)))
    return made, len(made) - len(field(b"")) - size


def frame(
    kind: str,
    dtype: str,
    shape: tuple[int, ...],
    digest: Digest,
    extra: bytes = b"",
    *,
    tenant: bytes | None = None,
) -> Digest:
    """The key of an item: its content's digest, bound to what the item is and whose it is."""
    framed = preimage(kind, dtype, shape, digest, extra)
    if tenant is None:
        return Digest("blake3", blake3(framed, derive_key_context=KEY_CONTEXT).digest())
    return Digest("blake3", blake3(framed, key=tenant_key(tenant)).digest())


def tenant_key(tenant: bytes) -> bytes:
    """The key that a tenant's frames are hashed with."""
    if not isinstance(tenant, bytes):
        raise InputTypeError(f"tenant is bytes or None, not {type(tenant).__name__}")
    if len(tenant) != TENANT_SIZE:
        raise InputValueError(f"tenant is {TENANT_SIZE} secret bytes, not {len(tenant)}")
    return blake3(tenant, derive_key_context=TENANT_CONTEXT).digest()
