"""Tenants: their names, secrets and keys, and the tags signed for them."""

from io import BytesIO
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save

import mmhash
from mmhash import Digest, TagError, verify_tag
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.images import encode_noise
from tests.support.in_process import running
from tests.support.responses import items_of, problem_of

NEW, OLD = bytes.fromhex("33" * 32), bytes.fromhex("44" * 32)
ACME = bytes.fromhex("11" * 32)
RAW = {"content-type": "application/octet-stream"}


def test_each_kind_of_body_has_the_tenant_s_keys(client: httpx.Client) -> None:
    array, image = np.arange(6, dtype=np.int32), encode_noise("PNG")
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


@pytest.mark.parametrize("name", ["", "nobody", "ACME", "x" * 5000])
def test_an_unknown_tenant_is_refused(client: httpx.Client, name: str) -> None:
    answer = client.post("/hash", content=b"abc", headers={**RAW, "X-Mmhash-Tenant": name})
    assert problem_of(answer) == (403, "unknown-tenant")


@pytest.fixture
def signing() -> Any:
    settings = Settings(decoders=1, tag_secrets=(NEW.hex(), OLD.hex()), tenants={"acme": "11" * 32})
    with running(create_app(settings)) as server:
        yield server.client


def test_a_tag_is_of_the_key_the_engine_and_the_tenant(signing: httpx.Client) -> None:
    header = RAW | {"X-Mmhash-Tenant": "acme"}
    answer = signing.post("/hash?sign=1&engines=sglang@0.5.23", content=b"abc", headers=header)
    (item,) = answer.raise_for_status().json()["items"]
    key, tag = Digest("blake3", bytes.fromhex(item["key"])), item["tag"]
    verify_tag(tag, key, engine="sglang", tenant="acme", secrets=[NEW])
    for engine, tenant, secret in [
        ("vllm", "acme", NEW),
        ("sglang", None, NEW),
        ("sglang", "umbrella", NEW),
        ("sglang", "acme", OLD),
    ]:
        with pytest.raises(TagError):
            verify_tag(tag, key, engine=engine, tenant=tenant, secrets=[secret])


def test_a_tag_must_be_asked_for(signing: httpx.Client) -> None:
    answer = signing.post("/hash?engines=vllm", content=b"abc", headers=RAW)
    assert "tag" not in answer.json()["items"][0]


@pytest.mark.parametrize("engines", ["", "&engines=vllm,sglang"])
def test_a_tag_is_for_one_engine(signing: httpx.Client, engines: str) -> None:
    answer = signing.post(f"/hash?sign=1{engines}", content=b"abc", headers=RAW)
    assert problem_of(answer) == (422, "invalid-query")


def test_without_a_secret_nothing_is_signed(client: httpx.Client) -> None:
    answer = client.post("/hash?sign=1&engines=vllm", content=b"abc", headers=RAW)
    assert problem_of(answer) == (403, "sign-off")
