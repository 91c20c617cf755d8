"""Tags: what each tag vouches for, and which texts are no tags."""

import struct
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from mmhash import Digest, TagError, sign_tag, tags, verify_tag
from mmhash.errors import InputError, InputTypeError, InputValueError

SPEC = (Path(__file__).parents[3] / "docs" / "spec.md").read_text()
# The key of the worked example in section 7 of the spec.
KEY = Digest.parse("blake3:67a9b575aa9f84b9d94710bda1fae602c80c8e0210bad353301a2b419ba510eb")
OLD, NEW = bytes(range(32)), bytes(range(32, 64))
EXPIRES = 1_800_000_000
NOW = 1_799_999_999.5
GOOD: dict[str, Any] = {"engine": "sglang", "tenant": "acme", "secrets": [OLD], "now": NOW}

VECTORS = [
    ("vllm", None, EXPIRES, OLD, "ASeXugDSSWsAAAAAZ6m1daqfhLnZRxC9ofrmAsgMjgIQutNTMBorQZulEOv3RJidDDTUI979y0mz628M"),
    ("sglang", "acme", EXPIRES, OLD, "ASeXugDSSWsAAAAAZ6m1daqfhLnZRxC9ofrmAsgMjgIQutNTMBorQZulEOse5cJGcudOMRgBcCnL2MB4"),
    ("vllm", None, 2**64 - 1, NEW, "AVV23f__________Z6m1daqfhLnZRxC9ofrmAsgMjgIQutNTMBorQZulEOsgMDCfVZMdkyjiQHply7W4"),
]  # fmt: skip
TAG = VECTORS[1][4]


def by_the_spec(key: bytes, engine: str, tenant: str, expires: int, secret: bytes) -> str:
    """Section 9, written out once more in the plainest way."""

    def field(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    made = blake3(secret, derive_key_context="mmhash 2026-11-21 tag v1").digest(length=35)
    head = b"\1" + made[32:] + struct.pack("<Q", expires) + key
    signed = field(head) + field(engine.encode()) + field(tenant.encode())
    return urlsafe_b64encode(head + blake3(signed, key=made[:32]).digest(length=16)).decode()


@pytest.mark.parametrize(("engine", "tenant", "expires", "secret", "tag"), VECTORS)
def test_the_vectors(
    engine: str, tenant: str | None, expires: int, secret: bytes, tag: str
) -> None:
    assert sign_tag(KEY, engine=engine, tenant=tenant, expires=expires, secrets=[secret]) == tag
    verify_tag(tag, KEY, engine=engine, tenant=tenant, secrets=[secret], now=NOW)
    assert by_the_spec(KEY.bytes, engine, tenant or "", expires, secret) == tag


@given(
    key=st.binary(min_size=32, max_size=32),
    engine=st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True),
    tenant=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=64),
    expires=st.integers(0, 2**64 - 1),
    secret=st.binary(min_size=32, max_size=32),
)
def test_any_tag_follows_the_spec_and_verifies(
    key: bytes, engine: str, tenant: str | None, expires: int, secret: bytes
) -> None:
    digest = Digest("blake3", key)
    tag = sign_tag(digest, engine=engine, tenant=tenant, expires=expires, secrets=[secret])
    assert tag == by_the_spec(key, engine, tenant or "", expires, secret)
    audience: dict[str, Any] = {"engine": engine, "tenant": tenant, "secrets": [secret]}
    verify_tag(tag, digest, **audience, now=expires - 1)
    assert tags.open_tag(tag, **audience, now=expires - 1) == digest


def test_the_example_of_the_spec() -> None:
    raw = urlsafe_b64decode(TAG)
    assert f"| signed head | `{raw[:44].hex()}` |" in SPEC
    assert f"| MAC | `{raw[44:].hex()}` |" in SPEC
    assert f"| tag | `{TAG}` |" in SPEC


def test_a_tag_holds_until_it_expires_by_the_clock() -> None:
    soon = int(time.time()) + 600
    tag = sign_tag(KEY, engine="vllm", tenant=None, expires=soon, secrets=[NEW])
    verify_tag(tag, KEY, engine="vllm", secrets=[NEW])
    late = sign_tag(KEY, engine="vllm", tenant=None, expires=soon - 1200, secrets=[NEW])
    with pytest.raises(TagError, match="expired"):
        verify_tag(late, KEY, engine="vllm", secrets=[NEW])


def test_a_tag_is_good_until_the_end_of_its_last_second() -> None:
    verify_tag(TAG, KEY, **GOOD)
    with pytest.raises(TagError, match=f"expired, at {EXPIRES} "):
        verify_tag(TAG, KEY, **GOOD | {"now": float(EXPIRES)})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"engine": "vllm"}, "another engine"),
        ({"engine": "sglan"}, "another engine"),
        ({"tenant": None}, "engine or tenant"),
        ({"tenant": "acm"}, "engine or tenant"),
        ({"tenant": "umbrella"}, "engine or tenant"),
        ({"engine": "sglangacme", "tenant": None}, "engine or tenant"),
        ({"secrets": [NEW]}, "no longer"),
    ],
)
def test_a_tag_is_good_for_its_engine_tenant_and_secret_alone(
    change: dict[str, Any], why: str
) -> None:
    with pytest.raises(TagError, match=why):
        verify_tag(TAG, KEY, **GOOD | change)


def test_a_tag_is_good_for_its_key_alone() -> None:
    with pytest.raises(TagError, match="another key"):
        verify_tag(TAG, Digest("blake3", bytes(32)), **GOOD)


def test_a_release_of_the_engine_does_not_count() -> None:
    newer = sign_tag(KEY, engine="sglang@0.5.23", tenant="acme", expires=EXPIRES, secrets=[OLD])
    assert newer == TAG
    verify_tag(TAG, KEY, **GOOD | {"engine": "sglang@0.5.24"})


def test_the_newest_secret_signs_and_older_ones_verify_until_they_go() -> None:
    rotated = [NEW, OLD]
    verify_tag(TAG, KEY, **GOOD | {"secrets": rotated})
    tag = sign_tag(KEY, engine="sglang", tenant="acme", expires=EXPIRES, secrets=rotated)
    verify_tag(tag, KEY, **GOOD | {"secrets": [NEW]})
    with pytest.raises(TagError, match="no longer"):
        verify_tag(TAG, KEY, **GOOD | {"secrets": [NEW]})


def test_secrets_of_one_short_id_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    derive = tags._derive_one

    def with_one_id(secret: bytes) -> tags._Secret:
        return derive(secret)._replace(id=b"one")

    monkeypatch.setattr(tags, "_derive_one", with_one_id)
    tag = sign_tag(KEY, engine="sglang", tenant="acme", expires=EXPIRES, secrets=[OLD])
    verify_tag(tag, KEY, **GOOD | {"secrets": [NEW, OLD]})
    with pytest.raises(TagError, match="forged"):
        verify_tag(tag, KEY, **GOOD | {"secrets": [NEW]})


def test_a_tag_with_any_bit_turned_is_refused() -> None:
    for bit in range(480):
        raw = bytearray(urlsafe_b64decode(TAG))
        raw[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TagError):
            tags.open_tag(urlsafe_b64encode(raw).decode(), **GOOD)


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        *(TAG[:length] for length in (1, 4, 58, 76, 79)),
        TAG + "=",
        TAG + "====",
        TAG + "\n",
        " " + TAG,
        TAG + TAG,
        TAG[:-4] + "A===",
        TAG.replace("_", "/").replace("-", "+") + "A",
        TAG[:40] + "\n" + TAG[40:],
        TAG[:-1] + "\N{FULLWIDTH LATIN CAPITAL LETTER A}",
        TAG * 100_000,
    ],
    ids=lambda spelling: f"{len(spelling)} characters",
)
def test_only_one_spelling_of_a_tag_is_accepted(spelling: str) -> None:
    with pytest.raises(TagError, match="80 characters"):
        tags.open_tag(spelling, **GOOD)


def test_another_version_is_named() -> None:
    raw = b"\2" + urlsafe_b64decode(TAG)[1:]
    with pytest.raises(TagError, match="version 2"):
        tags.open_tag(urlsafe_b64encode(raw).decode(), **GOOD)


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"secrets": []}, InputValueError, "at least one secret"),
        ({"secrets": [bytes(31)]}, InputValueError, "32 bytes"),
        ({"secrets": OLD}, InputTypeError, "secrets must be a list"),
        ({"secrets": [OLD.hex()]}, InputTypeError, "a secret must be bytes"),
        ({"secrets": [OLD, "x"]}, InputTypeError, "a secret must be bytes"),
        ({"engine": ""}, InputValueError, "engine"),
        ({"engine": "@0.5.23"}, InputValueError, "engine"),
        ({"tenant": ""}, InputValueError, "tenant"),
        ({"expires": 1.5}, InputTypeError, "expires"),
        ({"expires": -1}, InputValueError, "expires"),
        ({"expires": 2**64}, InputValueError, "expires"),
        ({"key": KEY.hex()}, InputTypeError, "key"),
        ({"key": Digest("xxh3", bytes(16))}, InputValueError, "32 bytes"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    change: dict[str, Any], error: type[InputError], why: str
) -> None:
    good = {"key": KEY, "engine": "vllm", "tenant": None, "expires": EXPIRES, "secrets": [OLD]}
    given = good | change
    with pytest.raises(error, match=why):
        sign_tag(given.pop("key"), **given)
    if "expires" not in change:
        del given["expires"]
        with pytest.raises(error, match=why):
            verify_tag(TAG, (good | change)["key"], **given)


def test_a_tag_is_a_str() -> None:
    with pytest.raises(InputTypeError, match="tag must be a str"):
        verify_tag(TAG.encode(), KEY, **GOOD)  # type: ignore[arg-type]
