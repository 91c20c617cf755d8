"""`POST /annotate`: requests, responses and refusals."""

from io import BytesIO
from typing import Any

import httpx
import pytest
from PIL import Image

import mmhash
from mmhash import Digest, verify_tag
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.images import encode, image_part
from tests.support.in_process import running
from tests.support.responses import problem_of


def chat(*parts: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}


def png(red: int) -> bytes:
    return encode(Image.new("RGB", (32, 24), (red, 0, 0)))


def test_the_answer_has_the_request_and_the_item_of_each_hash(client: httpx.Client) -> None:
    body = chat({"type": "text", "text": "Which?"}, image_part(b"one"), image_part(b"two"))
    answer = client.post("/annotate", params={"engine": "vllm"}, json=body)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json().keys() == {"request", "items"}
    asked = [
        client.post("/hash?engines=vllm", content=content, headers={"Content-Type": "image/png"})
        for content in (b"one", b"two")
    ]
    assert answer.json()["items"] == [item for one in asked for item in one.json()["items"]]
    parts = answer.json()["request"]["messages"][0]["content"]
    assert parts == [
        {"type": "text", "text": "Which?"},
        {**image_part(b"one"), "uuid": mmhash.key(b"one").hex()},
        {**image_part(b"two"), "uuid": mmhash.key(b"two").hex()},
    ]


def test_pixels_are_those_of_the_library_and_sounds_are_bytes(client: httpx.Client) -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "wav"}}
    body = chat(image_part(png(7)), sound)
    answer = client.post("/annotate", params={"engine": "vllm", "of": "pixels"}, json=body)
    picture, noise = answer.json()["request"]["messages"][0]["content"]
    assert picture["uuid"] == mmhash.key(Image.open(BytesIO(png(7)))).hex()
    assert noise["uuid"] == mmhash.key(b"\0\1\2").hex()
    assert [item["kind"] for item in answer.json()["items"]] == ["image", "bytes"]


def test_a_forwarded_request_keeps_its_other_bytes(client: httpx.Client) -> None:
    rest = rb'"a" : [1e400, -0.0, 1.0,10000000000000000000001], "\u00e9\/" :{"a":1, "b":2}'
    body = b'{"messages":[{"content":"hi"}], %b, "big":"%b"}' % (rest, b"x" * 100_000)
    header = {"Content-Type": "application/json"}
    answer = client.post("/annotate?engine=vllm", content=body, headers=header)
    for value in (b"[1e400, -0.0, 1.0,10000000000000000000001]", b'{"a":1, "b":2}', b"x" * 100_000):
        assert value in answer.content
    assert list(answer.json()["request"]) == ["messages", "a", "\u00e9/", "big"]


def test_equal_media_are_hashed_once_and_listed_at_each_place(client: httpx.Client) -> None:
    body = chat(image_part(png(99)), image_part(png(99)))
    answer = client.post("/annotate?engine=vllm&of=pixels", json=body)
    # Hashed twice, the second would have been a hit.
    assert [item["memo"] for item in answer.json()["items"]] == ["miss", "miss"]


def test_signed_hashes_bring_their_tags() -> None:
    body = {"mmhash_tags": ["a caller's"], **chat(*map(image_part, [b"one", b"two", b"one"]))}
    with running(create_app(Settings(tag_secrets=("33" * 32,)))) as server:
        plain, signed = (
            server.client.post(f"/annotate?engine=vllm&sign={sign}", json=body).json()
            for sign in (0, 1)
        )
    assert "mmhash_tags" not in plain["request"]
    first, second, _ = (item["tag"] for item in signed["items"])
    assert signed["request"]["mmhash_tags"] == [first, second]
    for item in signed["items"]:
        key = Digest("blake3", bytes.fromhex(item["key"]))
        verify_tag(item["tag"], key, engine="vllm", secrets=[bytes.fromhex("33" * 32)])


@pytest.mark.parametrize(
    ("query", "body", "problem"),
    [
        ("", chat(), (422, "invalid-query")),
        ("engine=trtllm", chat(), (422, "refused-by-engine")),
        ("engine=vllm&engines=vllm", chat(), (422, "invalid-query")),
        ("engine=sglang@0.5.19", chat(), (422, "no-field")),
        ("engine=sglang@0.5.12", {"text": "a"}, (422, "no-field")),
        ("engine=vllm", {"text": "a", "image_data": "AAEC"}, (422, "invalid-json")),
        ("engine=sglang", {"image_data": "AAEC"}, (422, "invalid-json")),
        ("engine=vllm", {"messages": {}}, (422, "invalid-json")),
        ("engine=vllm", {"messages": [["hi"]]}, (422, "invalid-json")),
        ("engine=vllm", chat(*map(image_part, [b"a"] * 1001)), (413, "too-many-items")),
        ("engine=sglang", {"text": ["a"] * 1001, "image_data": "AA=="}, (413, "too-many-items")),
        ("engine=vllm", {"messages": [], "a": [0] * 150_000}, (413, "body-too-large")),
        ("engine=vllm", chat({"image_url": "http://example.org/a.png"}), (403, "url-off")),
        ("engine=sglang", {"text": "a", "image_data": "a.png"}, (422, "invalid-base64")),
        ("engine=vllm&of=pixels", chat(image_part(b"one")), (422, "damaged-media")),
    ],
)
def test_a_request_that_cannot_be_annotated_whole_is_refused(
    client: httpx.Client, query: str, body: Any, problem: tuple[int, str]
) -> None:
    assert problem_of(client.post(f"/annotate?{query}", json=body)) == problem


def test_two_members_of_one_name_are_refused_by_name(client: httpx.Client) -> None:
    body = b'{"messages": [{"content": [], "content": []}]}'
    for path in ("/annotate?engine=vllm", "/annotate?engine=sglang"):
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert problem_of(answer) == (422, "invalid-json")
        (error,) = answer.json()["errors"]
        assert "'content'" in error["reason"]


def test_a_path_overrides_the_form_that_the_members_suggest(client: httpx.Client) -> None:
    body = {"text": "a", "image_data": "YWJj", **chat(image_part(b"one"))}
    native = client.post("/annotate?engine=sglang&path=/generate", json=body).json()
    assert native["request"]["messages"] == body["messages"]
    assert len(native["request"]["mm_hashes"]) == 1
    other = client.post("/annotate?engine=sglang&path=/v1/embeddings", json=body)
    assert problem_of(other) == (422, "invalid-query")
