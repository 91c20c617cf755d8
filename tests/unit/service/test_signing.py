"""Tags: what a call gets, who refuses to give one, and that a guard lets through what they cover."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from mmhash import Digest, TagError, verify_tag
from mmhash_service.app import create_app
from mmhash_service.guard import Guard
from mmhash_service.settings import Settings

Running = Callable[[FastAPI], AbstractContextManager[Any]]
Problem = Callable[[httpx.Response], tuple[int, str]]

NEW, OLD = bytes.fromhex("33" * 32), bytes.fromhex("44" * 32)
RAW = {"content-type": "application/octet-stream"}


@pytest.fixture
def signing(running: Running) -> Any:
    settings = Settings(
        tag_secrets=(NEW.hex(), OLD.hex()), tenants={"acme": "11" * 32}, tag_ttl_s=60
    )
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


def test_without_sign_there_is_no_tag(signing: httpx.Client) -> None:
    answer = signing.post("/hash?engines=vllm", content=b"abc", headers=RAW)
    assert "tag" not in answer.json()["items"][0]


@pytest.mark.parametrize("engines", ["", "&engines=vllm,sglang"])
def test_a_tag_is_for_one_engine(signing: httpx.Client, problem_of: Problem, engines: str) -> None:
    answer = signing.post(f"/hash?sign=1{engines}", content=b"abc", headers=RAW)
    assert problem_of(answer) == (422, "sign-engine")


def test_without_a_secret_nothing_is_signed(client: httpx.Client, problem_of: Problem) -> None:
    answer = client.post("/hash?sign=1&engines=vllm", content=b"abc", headers=RAW)
    assert problem_of(answer) == (403, "sign-off")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_annotate_signs_passes_the_guard(signing: httpx.Client, engine: str) -> None:
    url = "data:image/png;base64," + b64encode(b"a picture").decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "?"}]
    chat = {"messages": [{"role": "user", "content": content}]}
    answer = signing.post(f"/annotate?engine={engine}&sign=1", json=chat)
    annotated = answer.raise_for_status().json()["request"]

    def through_the_guard(body: dict[str, Any]) -> dict[str, Any]:
        app = FastAPI()

        @app.post("/v1/chat/completions")
        async def seen(request: Request) -> Any:
            return json.loads(await request.body())

        app.add_middleware(Guard, engine=engine, secrets=[NEW.hex()])

        async def ask() -> Any:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://e") as engine_client:
                return (await engine_client.post("/v1/chat/completions", json=body)).json()

        return asyncio.run(ask())

    expected = {name: value for name, value in annotated.items() if name != "mmhash_tags"}
    assert expected != chat
    assert through_the_guard(annotated) == expected
    assert through_the_guard(expected) == chat  # without its tags the hash does not pass
