"""One picture under options that change what the model sees: with one hash, one would be the other.

Where the engine does not keep the options apart /annotate does, and it keeps no claim of a caller.
"""

import json
from typing import Any

import pytest

import mmhash
from mmhash.engines import vllm
from tests.attacks.conftest import TAG_SECRET
from tests.support.guarded import through_guard

URL = "data:image/png;base64,YWJj"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"media_io_kwargs": {"image": {"image_mode": "RGBA"}}},
    {"media_io_kwargs": {"video": {"num_frames": 1}}},
    {"mm_processor_kwargs": {"image": {"image_mode": "RGBA"}}},
]


def annotate(server: Any, engine: str, request: Any, **query: Any) -> Any:
    answer = server.client.post("/annotate", params={"engine": engine, **query}, json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()["request"]


def chat(part: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [part]}], **more}


PART = {"type": "image_url", "image_url": {"url": URL}, "uuid": "f0" * 32}


SAMPLINGS: list[dict[str, Any]] = [
    {"media_io_kwargs": {"video": {"num_frames": 8}}},
    {"media_io_kwargs": {"video": {"num_frames": 16}}},
    {"media_io_kwargs": {"video": {"fps": 2, "num_frames": 8}}},
    {"mm_processor_kwargs": {"fps": 2}},
    {"mm_processor_kwargs": {"num_frames": 8}},
]


@pytest.mark.parametrize("release", ["0.18.0", "0.29.0", "0.30.0", "0.31.0", "0.33.0"])
def test_two_samplings_of_a_video_never_share_a_cache_entry(server: Any, release: str) -> None:
    part = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,YWJj"}}
    uuids, identifiers = set(), set()
    for options in SAMPLINGS:
        found = annotate(server, f"vllm@{release}", chat(part, **options))
        uuid = found["messages"][0]["content"][0]["uuid"]
        uuids.add(uuid)
        identifiers |= set(
            vllm.identifiers(
                "video",
                [b""],
                model_id="m",
                uuids=[uuid],
                processor_kwargs=options.get("mm_processor_kwargs", {}),
                media_io_kwargs=options.get("media_io_kwargs", {}),
                version=release,
            )
        )
    assert len(identifiers) == len(SAMPLINGS)
    # From 0.31 on the engine itself keeps the options of the item's own kind apart.
    expected = 1 if release >= "0.31" else len(SAMPLINGS)
    assert len(uuids) == expected


@pytest.mark.parametrize("options", OPTIONS)
def test_a_tag_is_for_the_uuid_that_names_the_options(signing: Any, options: Any) -> None:
    request = annotate(signing, "vllm@0.29.0", chat(PART, **options), sign=1)
    uuid = request["messages"][0]["content"][0]["uuid"]
    assert through(request)["messages"][0]["content"][0]["uuid"] == uuid
    request["messages"][0]["content"][0]["uuid"] = mmhash.key(b"abc").hex()
    left = through(request)["messages"][0]["content"][0]
    assert ("uuid" in left) == (options == {})


def through(request: Any) -> Any:
    """The request that an engine behind a guard gets."""
    body = json.dumps(request).encode()
    return json.loads(through_guard(body, engine="vllm", secrets=[TAG_SECRET]).body)
