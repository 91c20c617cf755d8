"""Spec v1 of keys: what is hashed beside the content, and how it is delimited (docs/spec.md)."""

import struct

from blake3 import blake3

from mmhash.digest import Digest
from mmhash.errors import InputTypeError, InputValueError

SPEC_VERSION = 1
TENANT_SIZE = 32

KEY_CONTEXT = "mmhash 2026-11-21 key v1"
TENANT_CONTEXT = "mmhash 2026-11-21 tenant v1"


def field(value: bytes) -> bytes:
    """`value` behind its length: no two sequences of fields give the same bytes."""
    return len(value).to_bytes(8, "little") + value


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
    preimage = b"".join(
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
    if tenant is None:
        return Digest("blake3", blake3(preimage, derive_key_context=KEY_CONTEXT).digest())
    return Digest("blake3", blake3(preimage, key=_tenant_key(tenant)).digest())


def _tenant_key(tenant: bytes) -> bytes:
    if not isinstance(tenant, bytes):
        raise InputTypeError(f"tenant is bytes or None, not {type(tenant).__name__}")
    if len(tenant) != TENANT_SIZE:
        raise InputValueError(f"tenant is {TENANT_SIZE} secret bytes, not {len(tenant)}")
    return blake3(tenant, derive_key_context=TENANT_CONTEXT).digest()
