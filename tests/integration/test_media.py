"""`POST /hash?of=frames` of a real server: the keys of the library, by any way of sending a clip."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

import mmhash
from mmhash.media import recipe_key
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.clips import make_audio, make_video
from tests.support.in_process import running
from tests.support.responses import items_of

TENANT = bytes(range(32))
FILM, SOUND = make_video("h264.mp4"), make_audio("flac.flac")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with running(create_app(Settings(decoders=1, tenants={"acme": TENANT.hex()}))) as server:
        yield server.client


def post(client: Any, body: bytes, kind: str, **query: Any) -> dict[str, Any]:
    headers = {"content-type": kind}
    (item,) = items_of(client.post("/hash", content=body, headers=headers, params=query))
    return item


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_keys_are_those_of_the_library(client: Any, algorithm: str) -> None:
    query = {"of": "frames", "algorithm": algorithm}
    item = post(client, FILM, "video/mp4", fps=2, max_frames=32, **query)
    expected = mmhash.video(FILM, fps=2, max_frames=32, algorithm=algorithm)
    assert item["key"] == expected.key.hex()
    assert (item["kind"], item["shape"], item["nbytes"]) == ("video", [4, 48, 64], len(FILM))
    assert item["key"] == post(client, FILM, "video/mp4", indices="0,6,12,18", **query)["key"]
    item = post(client, SOUND, "audio/flac", rate=8000, stop=0.5, **query)
    assert item["key"] == mmhash.audio(SOUND, rate=8000, stop=0.5, algorithm=algorithm).key.hex()


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_decoded_frames_have_keys_of_their_own(client: Any, algorithm: str) -> None:
    query = {"of": "frames", "by": "frames", "algorithm": algorithm}
    first = post(client, FILM, "video/mp4", count=4, size="32x24", **query)
    clip = mmhash.video(FILM, count=4, size=(32, 24), by="frames", algorithm=algorithm)
    assert first["frames"] == [frame.hex() for frame in clip.frames]
    assert (first["key"], first["kind"], first["memo"]) == (clip.key.hex(), "list", "miss")
    assert post(client, FILM, "video/mp4", count=4, size="32x24", **query)["memo"] == "hit"
    sound = post(client, SOUND, "audio/flac", window=0.25, **query)
    windows = mmhash.audio(SOUND, window=0.25, by="frames", algorithm=algorithm).windows
    assert sound["frames"] == [window.hex() for window in windows]


def test_a_tenant_is_in_the_keys(client: Any) -> None:
    headers = {"content-type": "video/mp4", "x-mmhash-tenant": "acme"}
    for by in ("source", "frames"):
        answer = client.post(
            "/hash", content=FILM, headers=headers, params={"of": "frames", "by": by}
        )
        clip = mmhash.video(FILM, by=by, tenant=TENANT)  # type: ignore[arg-type]
        assert items_of(answer)[0]["key"] == clip.key.hex()


def test_parts_and_json_items_are_as_bodies(client: Any) -> None:
    files = [
        ("film", ("film.mp4", FILM, "video/mp4")),
        ("sound", ("sound.flac", SOUND, "audio/flac")),
    ]
    expected = [mmhash.video(FILM).key.hex(), mmhash.audio(SOUND).key.hex()]
    parts = items_of(client.post("/hash", files=files, params={"of": "frames"}))
    assert [part["key"] for part in parts] == expected
    data = base64.b64encode(FILM).decode()
    items = [
        {"kind": "video", "data": data},
        {"kind": "audio", "url": "data:audio/flac;base64," + base64.b64encode(SOUND).decode()},
    ]
    answer = client.post("/hash", json={"items": items}, params={"of": "frames"})
    assert [item["key"] for item in items_of(answer)] == expected
    without = client.post("/hash", json={"items": items})
    assert without.json()["type"] == "urn:mmhash:problem:invalid-recipe"


def test_engines_get_the_key_under_the_recipe(client: Any) -> None:
    item = post(client, FILM, "video/mp4", of="frames", fps=2, engines="vllm")
    recipe = mmhash.video(FILM, fps=2).recipe
    assert item["key"] == recipe_key(mmhash.key(FILM), recipe).hex()
    assert item["key"] in item["engines"]["vllm"]["uuid"]


def test_without_frames_a_query_has_no_recipe(client: Any) -> None:
    headers = {"content-type": "video/mp4"}
    answer = client.post("/hash", content=FILM, headers=headers, params={"fps": 2})
    assert answer.json()["type"] == "urn:mmhash:problem:invalid-query"
    headers = {"content-type": "application/octet-stream"}
    answer = client.post("/hash", content=FILM, headers=headers, params={"of": "frames"})
    assert answer.json()["type"] == "urn:mmhash:problem:invalid-query"
