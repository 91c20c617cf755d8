"""A tag that nobody signed: of another tenant or engine, or of a service without a secret.

A MAC covers each byte of a tag, the engine and the tenant.
"""

import time
from typing import Any

import pytest

from mmhash import Digest, TagError, verify_tag
from tests.attacks.conftest import TAG_SECRET
from tests.support.responses import refusal_of


def test_the_service_signs_for_nobody_without_a_secret(server: Any) -> None:
    assert refusal_of(server.hash(b"abc", sign=1, engines="vllm")) == "sign-off"


def test_the_service_signs_for_the_tenant_that_was_named_alone(signing: Any) -> None:
    headers = {"content-type": "application/octet-stream", "x-mmhash-tenant": "acme"}
    answer = signing.client.post("/hash?sign=1&engines=vllm", content=b"abc", headers=headers)
    item = answer.json()["items"][0]
    key = Digest("blake3", bytes.fromhex(item["key"]))
    right: dict[str, Any] = {"engine": "vllm", "secrets": [bytes.fromhex(TAG_SECRET)]}
    verify_tag(item["tag"], key, **right, tenant="acme", now=time.time())
    for tenant in ("umbrella", None):
        with pytest.raises(TagError):
            verify_tag(item["tag"], key, **right, tenant=tenant, now=time.time())
    unsigned = signing.hash(b"abc", sign=1, engines="vllm,sglang")
    assert unsigned.json()["type"] == "urn:mmhash:problem:invalid-query"
