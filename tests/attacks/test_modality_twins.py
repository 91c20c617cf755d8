"""One file as an image, a video and an audio clip: an engine takes the features of one for the other.

An item of another modality has another hash.
"""

from itertools import combinations
from typing import Any

import pytest

import mmhash
from mmhash.engines import vllm

URL = "data:application/octet-stream;base64,YWJj"
PARTS: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": URL}},
    {"type": "video_url", "video_url": {"url": URL}},
    {"type": "audio_url", "audio_url": {"url": URL}},
]


@pytest.mark.parametrize("release", ["0.18.0", "0.28.0", "0.30.0", "0.33.0"])
@pytest.mark.parametrize("options", [{}, {"mm_processor_kwargs": {"fps": 2}}])
def test_an_item_of_each_modality_has_its_own_hash(
    server: Any, release: str, options: dict[str, Any]
) -> None:
    """vLLM fails with the features of an image for a video, as long as its cache has them."""
    request = {"messages": [{"role": "user", "content": PARTS}], **options}
    answer = server.client.post("/annotate", params={"engine": f"vllm@{release}"}, json=request)
    assert answer.status_code == 200, answer.text
    assert {item["key"] for item in answer.json()["items"]} == {mmhash.key(b"abc").hex()}
    parts = answer.json()["request"]["messages"][0]["content"]
    identifiers = {
        vllm.identifiers(
            part["type"].removesuffix("_url"),
            [b""],
            model_id="m",
            uuids=[part["uuid"]],
            processor_kwargs=options.get("mm_processor_kwargs", {}),
            media_io_kwargs={},
            version=release,
        )[0]
        for part in parts
    }
    assert len(identifiers) == len(PARTS)
    assert all(one["uuid"] != other["uuid"] for one, other in combinations(parts, 2))


def test_a_clip_has_one_hash_in_both_of_its_parts(server: Any) -> None:
    clip = {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}}
    request = {"messages": [{"role": "user", "content": [PARTS[2], clip]}]}
    answer = server.client.post("/annotate", params={"engine": "vllm@0.33.0"}, json=request)
    first, second = answer.json()["request"]["messages"][0]["content"]
    assert first["uuid"] == second["uuid"]
