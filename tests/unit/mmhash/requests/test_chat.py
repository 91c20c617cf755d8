"""Chat requests: which parts get a hash, and which field of theirs has it."""

import hashlib
from typing import Any

import pytest

import mmhash
from mmhash.engines.engine import NoFieldError
from tests.support.annotated import annotate

URL = "data:image/png;base64,AAEC"
CONTENT = b"\0\1\2"
UUID = mmhash.key(CONTENT).hex()
HASH = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


def annotated(engine: str, *parts: Any, **more: Any) -> dict[str, Any]:
    return annotate(engine, {"messages": [{"role": "user", "content": list(parts)}], **more})


def parts_of(answer: dict[str, Any]) -> list[Any]:
    return answer["request"]["messages"][0]["content"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"image_url": URL},
        {"type": None, "image_url": URL},
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAEC"}},
        {"video_url": "data:video/mp4;base64,AAEC"},
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAEC"}},
        {"audio_url": "data:audio/wav;base64,AAEC"},
        {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "wav"}},
        {"\u00fcnknown": [1], "type": "image_url", "image_url": {"url": URL, "b": {}}},
    ],
)
def test_vllm_gets_a_uuid_on_each_part_that_it_takes_media_in(part: dict[str, Any]) -> None:
    answer = annotated("vllm", part, "text", {**part, "uuid": "forged"})
    assert parts_of(answer) == [{**part, "uuid": UUID}, "text", {**part, "uuid": UUID}]
    assert [item["key"] for item in answer["items"]] == [UUID, UUID]


SOURCE = {"type": "base64", "media_type": "image/png", "data": "AAEC"}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": SOURCE},
        {"type": "document", "source": {"type": "url", "url": "http://a/b.pdf"}},
        {"type": "tool_result", "content": [{"type": "image", "source": SOURCE}]},
    ],
)
def test_media_of_the_messages_api_are_refused(engine: str, part: dict[str, Any]) -> None:
    """Engines take no hash there, so a request that is returned would never hit."""
    body = {"messages": [{"role": "user", "content": [part]}]}
    with pytest.raises(NoFieldError):
        annotate(engine, body)


@pytest.mark.parametrize(
    "part",
    [
        "text",
        {"type": "text", "text": "image_url"},
        {"type": "refusal", "refusal": "no"},
        {"type": "image_embeds", "image_embeds": "AAEC"},
        {"type": "hologram", "hologram": {"url": URL}},
        # By its type a text, by its fields an image: with a uuid vLLM would make it one.
        {"type": "text", "text": "a", "image_url": URL},
        {"type": "video_url", "video_url": {"url": URL}, "image_url": URL},
        {"type": "image_url", "image_url": URL, "tool_reference": "a"},
        {"type": "image_url", "image_url": None},
        {"type": "image_url", "image_url": {}},
        {"type": "image_url", "image_url": {"url": ""}},
        {"type": "image_url", "image_url": {"url": 1}},
        {"type": "image_url"},
        {"type": "input_audio", "input_audio": "AAEC"},
        {"type": "input_audio", "input_audio": {}},
        {},
        None,
        7,
        ["a"],
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_part_that_is_not_known_passes_through(engine: str, part: Any) -> None:
    answer = annotated(engine, part)
    assert parts_of(answer) == [part]
    assert answer["items"] == []


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": None},
        {"type": "image_embeds", "image_embeds": "AAEC"},
        {"type": "text", "text": "a"},
    ],
)
def test_vllm_gets_no_uuid_of_a_caller(part: dict[str, Any]) -> None:
    assert parts_of(annotated("vllm", {**part, "uuid": "forged"})) == [part]


def test_sglang_gets_the_hash_of_an_images_bytes() -> None:
    whole = {"type": "image_url", "image_url": {"url": URL, "detail": "high"}, "uuid": "kept"}
    plain = {"type": "image_url", "image_url": {"url": "AAEC", "content_hash": "forged"}}
    sound = {"type": "audio_url", "audio_url": {"url": URL}}
    answer = annotated("sglang", whole, plain, sound)
    assert parts_of(answer) == [
        {**whole, "image_url": {"url": URL, "detail": "high", "content_hash": HASH}},
        {**plain, "image_url": {"url": "AAEC", "content_hash": HASH}},
        sound,
    ]
    assert [item["key"] for item in answer["items"]] == [UUID, UUID]


@pytest.mark.parametrize("image", [{"content_hash": HASH}, {"url": None, "content_hash": HASH}])
def test_sglang_gets_no_hash_of_a_caller(image: dict[str, Any]) -> None:
    forged = {"type": "image_url", "image_url": image}
    answer = annotated("sglang", forged, mm_hashes=["0" * 16], mm_content_hashes=[HASH])
    assert "content_hash" not in parts_of(answer)[0]["image_url"]
    assert answer["request"].keys() == {"messages"}


def test_each_message_with_parts_is_annotated() -> None:
    image = {"type": "image_url", "image_url": {"url": URL}}
    messages = [
        {"role": "system", "content": "Look."},
        {"role": "user", "content": [image], "name": "a"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": [image], "tool_call_id": "1"},
        {"role": "assistant"},
    ]
    answer = annotate("vllm", {"messages": messages, "stream": True})
    messages[1]["content"] = messages[3]["content"] = [{**image, "uuid": UUID}]
    assert answer["request"] == {"messages": messages, "stream": True}
