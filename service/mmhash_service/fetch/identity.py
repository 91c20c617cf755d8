"""Strong digests of a whole object that its host claims in the head of a response.

A claim is only a claim: it identifies content only after a download has confirmed it.

- `Repr-Digest` (RFC 9530) covers the selected representation, also in the response to a HEAD or in
  a 206. `Content-Digest` covers the content of the message: that of a HEAD is empty, that of a 206
  a part, so only that of a 200 to a GET counts.
- S3's `x-amz-checksum-sha256` covers the object only with the type FULL_OBJECT. That of a
  multipart upload is a hash of hashes, with the type COMPOSITE and a suffix such as `-3`.
- Hugging Face's resolver sends `X-Xet-Hash`, the root of a tree of content-defined chunks that
  only Xet's own code computes, and `X-Linked-ETag`, the SHA-256 of the same file. The SHA-256 is
  what is compared; a Xet hash without it is not used. Without a Xet hash, the header is that of
  another store, and its meaning is not known.
"""

import base64
import binascii
import re
from collections.abc import Collection
from typing import Literal, NamedTuple

import httpx

from mmhash_service.fetch.validators import strong_etag

Source = Literal["digest", "s3", "xet"]
HashName = Literal["sha256", "sha512"]

_SIZES: dict[HashName, int] = {"sha256": 32, "sha512": 64}
_FIELD_NAMES: dict[str, HashName] = {"sha-256": "sha256", "sha-512": "sha512"}

# Longer headers are not parsed: two digests of RFC 9530 have 160 characters.
_MAX_HEADER = 1024
_MEMBER = re.compile(r"[ \t]*([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/=]*):[ \t]*")
_HEX_ETAG = re.compile(r'"?([0-9a-f]{64})"?')
_HEX = re.compile(r"[0-9a-f]{64}")
_LENGTH = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"bytes [0-9]{1,18}-[0-9]{1,18}/([0-9]{1,18})")


class StrongDigest(NamedTuple):
    """A digest that no two contents share."""

    name: HashName
    value: bytes


class ClaimedContent(NamedTuple):
    """The content that a host claims to have at a URL: its digest, and its ETag and length."""

    digest: StrongDigest
    etag: str | None
    nbytes: int | None


def claimed_content(
    status: int, method: str, headers: httpx.Headers, sources: Collection[Source]
) -> ClaimedContent | None:
    """Return the claim in the head of a response, from the first source that has one."""
    if headers.get("content-encoding", "identity").lower() != "identity":
        return None
    etag = strong_etag(headers.get("etag"))
    if "xet" in sources and (digest := _xet(headers)) is not None:
        return ClaimedContent(digest, digest.value.hex(), _number(headers.get("x-linked-size")))
    nbytes = _length(status, headers)
    if "s3" in sources and status == 200 and (digest := _s3(headers)) is not None:
        return ClaimedContent(digest, etag, nbytes)
    if "digest" in sources and status in {200, 206}:
        digest = _parse_field(headers.get("repr-digest"))
        if digest is None and (method, status) == ("GET", 200):
            digest = _parse_field(headers.get("content-digest"))
        if digest is not None:
            return ClaimedContent(digest, etag, nbytes)
    return None


def _parse_field(text: str | None) -> StrongDigest | None:
    """Return the SHA-256, or else the SHA-512, of a field of RFC 9530; None if it is malformed."""
    if text is None or len(text) > _MAX_HEADER:
        return None
    digests: dict[HashName, StrongDigest] = {}
    for member in text.split(","):
        match = _MEMBER.fullmatch(member)
        if match is None:
            return None
        name = _FIELD_NAMES.get(match[1])
        if name is None:
            continue
        digest = _decode(name, match[2])
        if digest is None or name in digests:
            return None
        digests[name] = digest
    return digests.get("sha256") or digests.get("sha512")


def _s3(headers: httpx.Headers) -> StrongDigest | None:
    if headers.get("x-amz-checksum-type") != "FULL_OBJECT":
        return None
    return _decode("sha256", headers.get("x-amz-checksum-sha256", ""))


def _xet(headers: httpx.Headers) -> StrongDigest | None:
    match = _HEX_ETAG.fullmatch(headers.get("x-linked-etag", ""))
    if match is None or not _HEX.fullmatch(headers.get("x-xet-hash", "")):
        return None
    return StrongDigest("sha256", bytes.fromhex(match[1]))


def _decode(name: HashName, text: str) -> StrongDigest | None:
    if len(text) > _MAX_HEADER or not text.isascii():
        return None
    try:
        value = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return StrongDigest(name, value) if len(value) == _SIZES[name] else None


def _length(status: int, headers: httpx.Headers) -> int | None:
    if status == 206:
        match = _RANGE.fullmatch(headers.get("content-range", ""))
        return int(match[1]) if match else None
    return _number(headers.get("content-length"))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _LENGTH.fullmatch(text) else None
