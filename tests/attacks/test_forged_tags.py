"""A tag that nobody signed: changed in a bit, of another tenant or engine, or of yesterday.

A MAC covers each byte of a tag, the engine and the tenant, and a tag has one spelling.
"""

import base64
import time
from typing import Any

import pytest

import mmhash
from mmhash import Digest, TagError, sign_tag, verify_tag
from tests.attacks.conftest import TAG_SECRET
from tests.support.responses import refusal_of

SECRET, OTHER = bytes.fromhex(TAG_SECRET), bytes(32)
KEY = mmhash.key(b"a picture")
NOW = 1_800_000_000
TAG = sign_tag(KEY, engine="vllm", tenant="acme", expires=NOW + 60, secrets=[SECRET])


def verify(tag: Any, key: Digest = KEY, **changes: Any) -> None:
    verify_tag(tag, key, **{"engine": "vllm", "tenant": "acme", "secrets": [SECRET], "now": NOW, **changes})  # fmt: skip


def test_the_one_that_was_signed_is_good() -> None:
    verify(TAG)


def test_a_change_of_any_bit_makes_it_none() -> None:
    raw = base64.urlsafe_b64decode(TAG)
    for bit in range(8 * len(raw)):
        changed = (int.from_bytes(raw) ^ 1 << bit).to_bytes(len(raw))
        with pytest.raises(TagError):
            verify(base64.urlsafe_b64encode(changed).decode())


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant": "umbrella"},
        {"tenant": None},
        {"tenant": "acm"},
        {"engine": "sglang"},
        {"engine": "vllmx"},
        {"secrets": [OTHER]},
        {"now": NOW + 60},
        {"now": NOW + 10**9},
        {"key": mmhash.key(b"another picture")},
    ],
    ids=str,
)
def test_elsewhere_or_later_it_is_none(changes: dict[str, Any]) -> None:
    with pytest.raises(TagError):
        verify(TAG, **changes)


def test_moved_between_engine_and_tenant_it_is_none() -> None:
    tag = sign_tag(KEY, engine="vllma", tenant="cme", expires=NOW + 60, secrets=[SECRET])
    with pytest.raises(TagError):
        verify(tag)


@pytest.mark.parametrize(
    "tag",
    [
        "",
        "a",
        TAG + "=",
        TAG + "\n",
        " " + TAG,
        TAG[:-1],
        TAG * 2,
        TAG.upper(),
        "+" * 80,
        "/" * 80,
        "é" * 80,
        "A" * 80,
        "A" * 10**6,
    ],
    ids=lambda tag: tag[:20],
)
def test_no_other_spelling_is_one(tag: str) -> None:
    with pytest.raises(TagError):
        verify(tag)


@pytest.mark.parametrize("tag", [None, 7, TAG.encode(), [TAG]], ids=str)
def test_what_is_no_text_is_none(tag: Any) -> None:
    with pytest.raises(mmhash.MMHashError):
        verify(tag)


def test_the_service_signs_for_nobody_without_a_secret(server: Any) -> None:
    assert refusal_of(server.hash(b"abc", sign=1, engines="vllm")) == "sign-off"


def test_the_service_signs_for_the_tenant_that_was_named_alone(signing: Any) -> None:
    headers = {"content-type": "application/octet-stream", "x-mmhash-tenant": "acme"}
    answer = signing.client.post("/hash?sign=1&engines=vllm", content=b"abc", headers=headers)
    item = answer.json()["items"][0]
    key = Digest("blake3", bytes.fromhex(item["key"]))
    verify(item["tag"], key, now=time.time())
    with pytest.raises(TagError):
        verify(item["tag"], key, now=time.time(), tenant="umbrella")
    unsigned = signing.hash(b"abc", sign=1, engines="vllm,sglang")
    assert unsigned.json()["type"] == "urn:mmhash:problem:invalid-query"
