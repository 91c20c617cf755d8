"""Tags: signed keys, valid for one engine and tenant until a time (docs/spec.md, section 9)."""

import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from functools import lru_cache
from hmac import compare_digest
from typing import NamedTuple

from blake3 import blake3

from mmhash.arguments import check_int, check_str, check_text
from mmhash.digest import Digest
from mmhash.errors import InputTypeError, InputValueError, TagError
from mmhash.fields import field

TAGS_MEMBER = "mmhash_tags"
"""The member of a request that holds the tags of its keys."""

TAG_CONTEXT = "mmhash 2026-11-21 tag v1"
TENANT_TAG_HEADER = b"x-mmhash-tenant-tag"
"""The header with the tag that proves the tenant in X-Mmhash-Tenant."""

TENANT_CONTEXT = "mmhash 2026-11-24 tenant v1"
SECRET_SIZE = 32

_VERSION = b"\x01"
_ID_SIZE = 3
_KEY_SIZE = 32
_MAC_SIZE = 16
_MAX_EXPIRES = 2**64 - 1

# 60 bytes are 80 characters without padding or spare bits, so each tag has only one spelling.
_TEXT = re.compile(r"[A-Za-z0-9_-]{80}", re.ASCII)


class _Secret(NamedTuple):
    """Values derived from a secret: the key of the MAC, and the secret's id in tags."""

    mac_key: bytes
    id: bytes


def sign_tag(
    key: Digest, *, engine: str, tenant: str | None, expires: int, secrets: Sequence[bytes]
) -> str:
    """Return a tag that authenticates `key` for the engine and the tenant with these names.

    Args:
        key: The key of an item.
        engine: The name of the engine, with or without a release.
        tenant: The name of the tenant, or None.
        expires: The seconds since 1970 until which the tag is valid.
        secrets: Secrets of 32 bytes: the first one signs.

    >>> key, secret = mmhash.key(b"abc"), bytes(32)
    >>> tag = sign_tag(key, engine="vllm", tenant=None, expires=2_000_000_000, secrets=[secret])
    >>> verify_tag(tag, key, engine="vllm", secrets=[secret], now=1_999_999_999)
    """
    newest = _derive(secrets)[0]
    _check_key(key)
    if check_int("expires", expires, 0) > _MAX_EXPIRES:
        raise InputValueError("expires must be seconds since 1970, and fit in 64 bits")
    head = _VERSION + newest.id + expires.to_bytes(8, "little") + key.bytes
    return urlsafe_b64encode(head + _mac(newest, head, _audience(engine, tenant))).decode()


def tenant_key(name: str) -> Digest:
    """Return the digest that stands for a tenant's name where a tag holds a key."""
    return Digest("blake3", blake3(name.encode(), derive_key_context=TENANT_CONTEXT).digest())


def verify_tag(
    tag: str,
    key: Digest,
    *,
    engine: str,
    tenant: str | None = None,
    secrets: Sequence[bytes],
    now: float | None = None,
) -> None:
    """Raise a TagError with the reason unless the tag authenticates `key`.

    Args:
        tag: The text that `sign_tag` returned.
        key: The key that it must authenticate.
        engine: The name of the engine, with or without a release.
        tenant: The name of the tenant, or None.
        secrets: Secrets of 32 bytes; one of them signed the tag.
        now: The seconds since 1970, by default from the clock.
    """
    _check_key(key)
    if open_tag(tag, engine=engine, tenant=tenant, secrets=secrets, now=now) != key:
        raise TagError("the tag vouches for another key")


def open_tag(
    tag: str,
    *,
    engine: str,
    tenant: str | None = None,
    secrets: Sequence[bytes],
    now: float | None = None,
) -> Digest:
    """Return the key that the tag authenticates; any of the secrets may have signed it."""
    derived = _derive(secrets)
    audience = _audience(engine, tenant)
    check_str("tag", tag)
    now = time.time() if now is None else now
    if _TEXT.fullmatch(tag) is None:
        raise TagError("a tag must be 80 characters of A-Z, a-z, 0-9, - and _")
    raw = urlsafe_b64decode(tag)
    head, mac = raw[:-_MAC_SIZE], raw[-_MAC_SIZE:]
    version, secret_id, expires = head[:1], head[1:4], int.from_bytes(head[4:12], "little")
    if version != _VERSION:
        raise TagError(f"the tag has version {version[0]}: only version {_VERSION[0]} is known")
    signers = [secret for secret in derived if secret.id == secret_id]
    if not signers:
        raise TagError("the tag is signed with a secret that is unknown or no longer in use")
    if not any(compare_digest(_mac(secret, head, audience), mac) for secret in signers):
        raise TagError("the tag is forged, or made for another engine or tenant")
    if now >= expires:
        raise TagError(f"the tag has expired, at {expires} seconds since 1970")
    return Digest("blake3", head[-_KEY_SIZE:])


def _derive(secrets: Sequence[bytes]) -> list[_Secret]:
    if not isinstance(secrets, (list, tuple)):
        raise InputTypeError(f"secrets must be a list of bytes, not {type(secrets).__name__}")
    if not secrets:
        raise InputValueError("pass at least one secret: without a secret no tag is valid")
    for secret in secrets:
        if not isinstance(secret, bytes):
            raise InputTypeError(f"a secret must be bytes, not {type(secret).__name__}")
        if len(secret) != SECRET_SIZE:
            raise InputValueError(f"a secret must be {SECRET_SIZE} bytes, not {len(secret)}")
    return [_derive_one(secret) for secret in secrets]


@lru_cache(maxsize=16)
def _derive_one(secret: bytes) -> _Secret:
    derived = blake3(secret, derive_key_context=TAG_CONTEXT).digest(length=32 + _ID_SIZE)
    return _Secret(derived[:32], derived[32:])


def _check_key(key: Digest) -> None:
    if not isinstance(key, Digest):
        raise InputTypeError(f"a tag vouches for a key, not for a {type(key).__name__}")
    if len(key.bytes) != _KEY_SIZE:
        raise InputValueError(
            f"a key must be {_KEY_SIZE} bytes: this is a digest of {len(key.bytes)}"
        )


def _audience(engine: str, tenant: str | None) -> bytes:
    """Return the fields that bind a tag to an engine and a tenant.

    The engine's name counts without its release. All releases that accept a caller's hash accept
    the same form, and an upgrade behind a gateway should not invalidate every tag.
    """
    check_text("engine", engine)
    if tenant is not None:
        check_text("tenant", tenant)
    name = engine.partition("@")[0]
    if not name:
        raise InputValueError("engine must be a name such as vllm or sglang@0.5.23")
    if tenant == "":
        raise InputValueError("a tenant's name must not be empty: pass None for no tenant")
    return field(name.encode()) + field((tenant or "").encode())


def _mac(secret: _Secret, head: bytes, audience: bytes) -> bytes:
    return blake3(field(head) + audience, key=secret.mac_key).digest(length=_MAC_SIZE)
