"""Annotating media by URL, and what a configured model changes."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import mmhash
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support import prompt_models
from tests.support.family_files import INTERNVL_CHAT, write_files
from tests.support.in_process import running
from tests.support.origin import Origin


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "a.png"
    Image.effect_noise((64, 48), 50).save(path)
    return path


@pytest.fixture
def host(picture: Path, origin: Origin) -> str:
    """A host that has the picture."""
    origin.answers = dict.fromkeys(("/a", "/b"), Origin.ok(picture.read_bytes()))
    return f"127.0.0.1:{origin.port}"


@pytest.fixture
def fetching(host: str) -> Iterator[httpx.Client]:
    settings = Settings(decoders=1, url_hosts=(host,), url_networks=("127.0.0.0/8",))
    with running(create_app(settings)) as server:
        yield server.client


def parts_of(client: httpx.Client, query: str, *urls: str) -> list[dict[str, Any]]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    answer = client.post(f"/annotate?{query}", json={"messages": [{"content": parts}]})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["items"]) == len(urls)
    return answer.json()["request"]["messages"][0]["content"]


@pytest.mark.parametrize("of", ["bytes", "pixels"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_url_has_the_hash_of_what_it_points_to(
    fetching: httpx.Client, host: str, picture: Path, engine: str, of: str
) -> None:
    content = picture.read_bytes()
    urls = [f"http://{host}/a", f"http://{host}/b"]
    if engine == "vllm":
        key = mmhash.key(Image.open(picture) if of == "pixels" else content)
        hashes = [part["uuid"] for part in parts_of(fetching, f"engine=vllm&of={of}", *urls)]
        assert hashes == [key.hex()] * 2
    else:
        parts = parts_of(fetching, f"engine=sglang&of={of}", *urls)
        assert [part["image_url"]["content_hash"] for part in parts] == [
            f"sha256:{hashlib.sha256(content).hexdigest()}"
        ] * 2


@pytest.fixture(scope="module")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: prompt_models.write(name, folder / name) for name in ("qwen2_vl", "qwen3_vl")}


@pytest.fixture
def client_of_models(model_folders: dict[str, Path]) -> Iterator[httpx.Client]:
    with running(create_app(Settings(decoders=1, models=model_folders))) as server:
        yield server.client


@pytest.mark.parametrize(
    ("engine", "model", "has_hashes"),
    [
        ("sglang@0.5.23", "qwen3_vl", False),
        ("sglang@0.5.20", "qwen3_vl", False),
        ("sglang@0.5.19", "qwen3_vl", True),
        ("sglang@0.5.23", "qwen2_vl", True),
        ("sglang@0.5.23", "other", True),
        ("sglang@0.5.23", None, True),
        ("sglang@0.5.23", 7, True),
    ],
)  # fmt: skip
def test_a_configured_model_decides_as_its_plan(
    client_of_models: httpx.Client,
    picture: Path,
    engine: str,
    model: object,
    has_hashes: bool,
) -> None:
    content = base64.b64encode(picture.read_bytes()).decode()
    text = "<|vision_start|><|image_pad|><|vision_end|>"
    request = {"text": text, "image_data": content, "mm_hashes": ["1"], "model": model}
    answer = client_of_models.post("/annotate", params={"engine": engine}, json=request).json()
    (item,) = answer["items"]
    del request["mm_hashes"]
    if has_hashes:
        request["mm_hashes"] = [item["engines"][engine]["mm_hash"]]
    assert answer["request"] == request
    assert item["key"] == mmhash.key(picture.read_bytes()).hex()
    if model in {"qwen2_vl", "qwen3_vl"}:
        query = {"engine": engine, "model": str(model), "request": "true"}
        planned = client_of_models.post("/plan", params=query, json=request).json()
        assert planned["request"] == request


def test_a_model_without_plans_for_the_engine_decides_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, ("<img>", "</img>", "<IMG_CONTEXT>"), INTERNVL_CHAT)
    with running(create_app(Settings(decoders=1, models={"m": tmp_path}))) as server:
        request = {"text": "<image>", "image_data": "YWJj", "model": "m"}
        answer = server.client.post("/annotate?engine=sglang@0.5.23", json=request).json()
    assert answer["request"]["mm_hashes"] == ["0f3e80300d68299e"]


def test_an_empty_engine_is_refused(client_of_models: httpx.Client) -> None:
    answer = client_of_models.post("/annotate?engine=", json={"messages": []})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:mmhash:problem:invalid-query")
