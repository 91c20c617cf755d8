"""Tenants: a name in the call, a secret in the settings, and keys that do not meet."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save

import mmhash

Items = Callable[[httpx.Response], list[dict[str, Any]]]
Problem = Callable[[httpx.Response], tuple[int, str]]

ACME = bytes.fromhex("11" * 32)
RAW = {"content-type": "application/octet-stream"}


def test_each_kind_of_body_has_the_tenant_s_keys(
    client: httpx.Client, items_of: Items, encode: Callable[..., bytes]
) -> None:
    array, image = np.arange(6, dtype=np.int32), encode("PNG")
    opened = Image.open(BytesIO(image))
    tenant = {"X-Mmhash-Tenant": "acme"}

    def key(answer: httpx.Response) -> str:
        (item,) = items_of(answer)
        return item["key"]

    def post(content: bytes, kind: str, query: str = "") -> str:
        headers = {**tenant, "content-type": kind}
        return key(client.post("/hash" + query, content=content, headers=headers))

    raw = "application/octet-stream"
    assert post(b"abc", raw) == mmhash.key(b"abc", tenant=ACME).hex()
    tensor = post(array.tobytes(), raw, "?dtype=int32&shape=6")
    assert tensor == post(save({"a": array}), "application/x-safetensors")
    assert tensor == mmhash.key(array, tenant=ACME).hex()
    assert post(image, "image/png", "?of=pixels") == mmhash.key(opened, tenant=ACME).hex()
    body = {"items": [{"kind": "bytes", "data": "YWJj"}]}
    assert key(client.post("/hash", json=body, headers=tenant)) == post(b"abc", raw)
    assert key(client.post("/hash", files={"a": b"abc"}, headers=tenant)) == post(b"abc", raw)


def test_tenants_have_keys_of_their_own_and_one_digest(
    client: httpx.Client, items_of: Items
) -> None:
    answers = [
        items_of(client.post("/hash", content=b"abc", headers=RAW | tenant))[0]
        for tenant in ({}, {"X-Mmhash-Tenant": "acme"}, {"x-mmhash-tenant": "umbrella"})
    ]
    assert len({item["key"] for item in answers}) == 3
    assert len({item["digest"] for item in answers}) == 1


@pytest.mark.parametrize("name", ["", "nobody", "ACME", "x" * 5000])
def test_an_unknown_tenant_is_refused(client: httpx.Client, problem_of: Problem, name: str) -> None:
    answer = client.post("/hash", content=b"abc", headers={**RAW, "X-Mmhash-Tenant": name})
    assert problem_of(answer) == (403, "unknown-tenant")
