"""A text that the service and the engine decode differently: the hash of one content would name the other.

Such a text gets no hash, and the engine computes its own.
"""

import base64
import json
from typing import Any

import pytest

import mmhash
from mmhash.engines import vllm
from mmhash.engines.registry import find
from mmhash.requests import Document, read_for

SEEN, OTHER = b"the content that the key is of", b"the content that the engine reads"
TEXT, OTHER_TEXT = (base64.b64encode(one).decode() for one in (SEEN, OTHER))
ESCAPED = TEXT[:8] + "%" + TEXT[8:9].encode().hex() + TEXT[9:]


def url_part(name: str, url: str) -> dict[str, Any]:
    return {"type": name, name: {"url": url}}


def audio_part(**members: Any) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": TEXT, **members}}


# Before 0.30, vLLM decodes videos and audio clips by pybase64.b64decode(text), which skips the characters
# of an escape. It makes a data: URL of an audio clip's format and data, and decodes all after the first
# comma.
PARTS = {
    "escapes in a video": url_part("video_url", f"data:video/mp4;base64,{ESCAPED}"),
    "escapes in a clip": url_part("audio_url", f"data:audio/wav;base64,{ESCAPED}"),
    "escapes in an image": url_part("image_url", f"data:image/png;base64,{ESCAPED}"),
    "no base64": url_part("image_url", f"data:image/png,{TEXT}"),
    "no base64, but a parameter of that name": url_part("image_url", f"data:;base64=1,{TEXT}"),
    "no base64, in a text": {"type": "image_url", "image_url": f"DATA:,{TEXT}"},
    "frames with a parameter": url_part("video_url", f"data:video/jpeg;a=b;base64,{TEXT}"),
    "a format with a content": audio_part(format=f"wav;base64,{OTHER_TEXT}"),
    "a format with a comma": audio_part(format="wav,"),
    "a format with an escape": audio_part(format="%2c"),
    "a format that is a list": audio_part(format=[f";base64,{OTHER_TEXT}"]),
    "a format that is an object": audio_part(format={f";base64,{OTHER_TEXT}": 1}),
    "a format that is a number": audio_part(format=1),
}


def chat(part: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [part]}]}


def document(request: dict[str, Any]) -> Document:
    return Document(json.dumps(request).encode())


@pytest.mark.parametrize("engine", ["vllm@0.28.0", "vllm@0.33.0", "sglang@0.5.23"])
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_text_with_two_meanings_gets_no_hash(
    server: Any, engine: str, part: dict[str, Any]
) -> None:
    answer = server.client.post("/annotate", params={"engine": engine}, json=chat(part))
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"request": chat(part), "items": []}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_text_with_two_meanings_has_no_plan(part: dict[str, Any]) -> None:
    assert read_for(document(chat(part)), *find("vllm@0.28.0")).unclear


@pytest.mark.parametrize("nest", [lambda url: url, lambda url: [url], lambda url: [["YWJj", url]]])
@pytest.mark.parametrize(
    "url", [f"data:image/png;base64,{ESCAPED}", f"data:image/png,{TEXT}", "data:base64,YWJj"]
)
def test_a_native_request_gets_no_hash_either(server: Any, nest: Any, url: str) -> None:
    request = {"text": "a", "image_data": nest(url)}
    answer = server.client.post("/annotate", params={"engine": "sglang@0.5.23"}, json=request)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"request": request, "items": []}
    assert read_for(document(request), *find("sglang@0.5.23")).unclear


@pytest.mark.parametrize(
    "part",
    [
        audio_part(),
        audio_part(format="wav"),
        audio_part(format="x-m4a"),
        url_part("audio_url", f"data:audio/wav;base64,{TEXT}"),
        url_part("video_url", f"data:video/jpeg2000;base64,{TEXT}"),
        url_part("image_url", f"data:;charset=%2c;base64,{TEXT}"),
    ],
)
def test_a_text_with_one_meaning_gets_one(server: Any, part: dict[str, Any]) -> None:
    answer = server.client.post("/annotate", params={"engine": "vllm@0.28.0"}, json=chat(part))
    (item,) = answer.json()["items"]
    assert item["key"] == mmhash.key(SEEN).hex()
    (found,) = answer.json()["request"]["messages"][0]["content"]
    assert found == {**part, "uuid": vllm.uuid(mmhash.key(SEEN))}


def test_frames_have_another_hash_than_a_file_of_the_same_bytes(server: Any) -> None:
    """vLLM reads the bytes of video/jpeg as images, and those of video/mp4 as a video."""
    hashes = set()
    for kind in ("Video/JPEG", "video/mp4"):
        part = url_part("video_url", f"data:{kind};base64,{TEXT}")
        answer = server.client.post("/annotate", params={"engine": "vllm"}, json=chat(part))
        (found,) = answer.json()["request"]["messages"][0]["content"]
        hashes.add(found["uuid"])
    assert hashes == {vllm.uuid(mmhash.key(SEEN)), vllm.uuid(mmhash.key([SEEN]))}
