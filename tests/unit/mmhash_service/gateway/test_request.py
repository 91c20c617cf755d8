"""Requests on their way to workers are read once, and their media hashed once."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import mmhash
from mmhash.cpu import hash_bytes
from mmhash.requests import Document
from mmhash_service.gateway.request import is_light, read_request, requested_model
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.app import create_app
from mmhash_service.limits.threads import ThreadPool
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from tests.support import in_process, prompt_models
from tests.support.images import encode, image_part

IMAGE = b'{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,%b"}}]}]}'


@pytest.mark.parametrize("body", [b"", b"{}", b"[" * 4000, IMAGE % (b"A" * 150_000)])
def test_a_body_with_few_values_is_light(body: bytes) -> None:
    assert is_light(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"0," * 20_000 + b"0]",
        b"{" + b'"a":{' * 8000,
        b'"' * 40_000,
        IMAGE % (b"A" * 200_000),
    ],
)
def test_a_long_body_or_one_with_many_values_is_not(body: bytes) -> None:
    assert not is_light(body)


def png(red: int) -> bytes:
    return encode(Image.new("RGB", (56, 56), (red, 0, 0)))


def chat(*images: bytes) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": [*map(image_part, images)]}]}


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the contents that are hashed."""
    lengths: list[int] = []

    def count(body: Any, algorithm: Any) -> mmhash.Digest:
        lengths.append(len(body))
        return hash_bytes(body, algorithm)

    monkeypatch.setattr("mmhash.requests.media_source.hash_bytes", count)
    return lengths


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prompt_models.write_qwen2_vl(tmp_path_factory.mktemp("tiny"))


@contextmanager
def routing(folder: Path, *, sign: bool = True, **settings: Any) -> Iterator[httpx.Client]:
    workers = ("http://127.0.0.1:9,engine=vllm@0.32.0", "http://127.0.0.1:10,engine=sglang@0.5.23")
    service = Settings(models={"tiny": folder}, decoders=1, tag_secrets=["33" * 32] * sign)
    gateway = GatewaySettings(worker_list=workers, **settings)
    with in_process.running(create_app(service, gateway)) as server:
        yield server.client


@pytest.mark.parametrize("sign", [False, True])
def test_media_are_hashed_once_for_all_engines_and_tags(
    folder: Path, hashed: list[int], *, sign: bool
) -> None:
    """They were hashed for each engine and, with tags, for each of them again."""
    with routing(folder, sign=sign) as client:
        answer = client.post("/route", json=chat(png(1), png(2), png(1))).json()
    assert answer["plan"]["tokens"] > 0
    assert ("mmhash_tags" in answer["request"]) == sign
    assert sorted(hashed) == sorted([len(png(1)), len(png(2))])


@pytest.mark.parametrize("policy", ["round-robin", "least-load", "consistent-hash"])
def test_only_the_longest_prefix_needs_a_plan(folder: Path, hashed: list[int], policy: str) -> None:
    with routing(folder, policy=policy) as client:
        answer = client.post("/route", json=chat(png(3))).json()
    assert answer["plan"] is None
    (part,) = answer["request"]["messages"][0]["content"]
    assert "uuid" in part or "content_hash" in part["image_url"]  # the hash is there all the same
    assert len(hashed) == 1


def test_a_body_of_images_needs_no_thread_and_loses_callers_hashes() -> None:
    work = ThreadPool(5.0, threads=1)
    work.stop()  # a job would fail
    request = chat(png(1) + bytes(200_000))
    for add in ({}, {"uuid": "forged"}):
        request["messages"][0]["content"][0] |= add
        body = json.dumps(request).encode()
        routed = asyncio.run(
            read_request(body, "application/json", "/v1/chat/completions", work, is_prompt=True)
        )
        assert routed.is_light
        assert b"forged" not in routed.text
        assert len(routed.text) > 200_000


def test_an_unreadable_request_passes_without_a_document() -> None:
    async def read(body: bytes, path: str) -> Any:
        return await read_request(body, "application/json", path, work, is_prompt=True)

    work = ThreadPool(5.0, threads=1)
    try:
        for body in (b"[]", b'{"a": 1, "a": 2}', b'{"messages": '):
            routed = asyncio.run(read(body, "/generate"))
            assert routed.text is body
            with pytest.raises(Problem):
                _ = routed.document
        native = asyncio.run(read(json.dumps(chat(png(1))).encode(), "/generate"))
        assert isinstance(native.document, Document)
        assert native.document.form == "generate"
    finally:
        work.stop()


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"messages": [{"model": "no"}], "model": "q\\u0077en"}', "qwen"),
        (b'{"model": null}', ""),
        (b'{"model": 1}', ""),
        (b"{}", ""),
        (b"[]", ""),
        (b"", ""),
        (b"--boundary", ""),
        (b'{"model": "\xff"}', ""),
        (b'{"x": ' + b"[" * 200_000, ""),
    ],
)
def test_a_request_names_a_model(body: bytes, model: str) -> None:
    assert requested_model(body) == model
