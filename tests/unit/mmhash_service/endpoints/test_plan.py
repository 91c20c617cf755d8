"""`POST /plan` returns the library's plan, with media from the request, by URL or from the memo."""

import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import ExifTags, Image

import mmhash
from mmhash.prompts import Model
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.live import models
from tests.support import in_process
from tests.support.images import data_url, frames_url
from tests.support.origin import Origin
from tests.support.responses import problem_of

ENGINES = ["vllm@0.32.0", "sglang@0.5.23"]


def png(width: int = 64, height: int = 48, turn: int | None = None) -> bytes:
    buffer = io.BytesIO()
    exif = Image.Exif()
    if turn is not None:
        exif[ExifTags.Base.Orientation] = turn
    Image.new("RGB", (width, height), (width % 256, height % 256, 7)).save(buffer, "PNG", exif=exif)
    return buffer.getvalue()


def chat(*urls: str) -> dict[str, Any]:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = [{"type": "text", "text": "Compare these."}, *images]
    return {"model": "tiny", "messages": [{"role": "user", "content": content}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    models.write("qwen2_vl", folder)
    return folder


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    with closing(Origin()) as origin:
        yield origin


@pytest.fixture(scope="module")
def planner(folder: Path, origin: Origin) -> Iterator[httpx.Client]:
    settings = Settings(
        models={"tiny": folder},
        url_hosts=(f"127.0.0.1:{origin.port}",),
        url_networks=("127.0.0.0/8",),
    )
    with in_process.running(create_app(settings)) as server:
        yield server.client


def plan(client: httpx.Client, request: Any, engine: str = "vllm", **query: Any) -> dict[str, Any]:
    answer = client.post(
        "/plan", json=request, params={"model": "tiny", "engine": engine, "request": True, **query}
    )
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


@pytest.mark.parametrize("engine", ENGINES)
def test_a_plan_is_that_of_the_library(planner: httpx.Client, folder: Path, engine: str) -> None:
    request = chat(data_url(png()), data_url(png(96, 32)))
    expected = Model.load(folder).plan(request, engine)
    answer = plan(planner, request, engine)
    assert answer["token_ids"] == expected.token_ids
    assert answer["blocks"] == expected.blocks
    assert answer["event_ids"] == expected.event_ids
    assert answer["request"] == expected.request
    places = [(item["start"], item["end"], item["key"]) for item in answer["items"]]
    assert places == [(item.start, item.end, item.key.hex()) for item in expected.items]
    assert [item["key"] for item in answer["items"]] == [
        mmhash.key(png()).hex(), mmhash.key(png(96, 32)).hex()
    ]  # fmt: skip


def test_items_are_those_of_annotate(planner: httpx.Client) -> None:
    request = chat(data_url(png()))
    for of in ("bytes", "pixels"):
        annotated = planner.post("/annotate", json=request, params={"engine": "vllm", "of": of})
        answer = plan(planner, request, of=of)
        (item,), (expected,) = answer["items"], annotated.json()["items"]
        memo = {"memo"}  # the second call is a hit
        assert {name: item[name] for name in expected.keys() - memo} == {
            name: expected[name] for name in expected.keys() - memo
        }
        assert answer["request"] == annotated.json()["request"]


@pytest.mark.parametrize("frames", [[png()], [png()] * 3])
def test_a_video_of_frames_is_planned_as_by_the_library(
    planner: httpx.Client, folder: Path, frames: list[bytes]
) -> None:
    part = {"type": "video_url", "video_url": {"url": frames_url(frames)}}
    request = {"model": "tiny", "messages": [{"role": "user", "content": [part]}]}
    expected = Model.load(folder).plan(request, "vllm")
    answer = plan(planner, request)
    for name in ("token_ids", "event_ids", "request"):
        assert answer[name] == getattr(expected, name)
    (item,) = answer["items"]
    assert item["key"] == mmhash.key(frames).hex()
    assert (item["kind"], item["shape"]) == ("list", [len(frames)])


def test_a_video_file_is_refused_by_name(planner: httpx.Client) -> None:
    part = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    request = {"messages": [{"role": "user", "content": [part]}]}
    answer = planner.post("/plan", json=request, params={"model": "tiny", "engine": "vllm"})
    assert answer.json()["type"].endswith(":unplannable-item")


def test_an_image_by_url_is_planned_as_one_in_the_request(
    planner: httpx.Client, origin: Origin
) -> None:
    origin.answers["/a.png"] = Origin.ok(png(), 'ETag: "1"')
    url = f"http://127.0.0.1:{origin.port}/a.png"
    inline = plan(planner, chat(data_url(png())))
    remote = plan(planner, chat(url))
    for name in ("token_ids", "spans", "blocks", "event_ids"):
        assert remote[name] == inline[name]
    assert remote["items"][0]["memo"] == "miss"


@pytest.mark.parametrize("of", ["bytes", "pixels"])
def test_a_url_that_the_memo_knows_is_not_downloaded(
    planner: httpx.Client, origin: Origin, of: str
) -> None:
    path = f"/known-{of}.png"
    url = f"http://127.0.0.1:{origin.port}{path}"
    origin.answers[path] = Origin.ok(png(70, 70), 'ETag: "1"')
    first = plan(planner, chat(url), of=of)
    origin.answers[path] = Origin.ok(b"", 'ETag: "1"', status="304 Not Modified")
    second = plan(planner, chat(url), of=of)
    assert second["items"][0]["memo"] == "hit"
    assert second["token_ids"] == first["token_ids"]
    assert second["blocks"] == first["blocks"]
    assert "if-none-match" in origin.heads[-1].lower()


def test_a_request_with_too_many_images_is_refused(planner: httpx.Client) -> None:
    answer = planner.post(
        "/plan", json=chat(*[data_url(png())] * 1001), params={"model": "tiny", "engine": "vllm"}
    )
    assert problem_of(answer) == (413, "too-many-items")


def test_the_reason_for_no_plan_is_named(planner: httpx.Client) -> None:
    message = {"role": "user", "content": [{"type": "document"}]}
    answer = planner.post(
        "/plan",
        json={"messages": [message]},
        params={"model": "tiny", "engine": "vllm", "path": "/v1/messages"},
    )
    assert answer.json()["type"].endswith(":unplannable-prompt")
    assert "'document'" in answer.json()["reason"]
