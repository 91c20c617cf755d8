"""`POST /hash` returns the library's digests and keys, and a problem for each wrong request."""

from typing import Any

import httpx
import pytest

import mmhash
from mmhash.digest import ALGORITHMS
from tests.support.images import encode_noise

RAW = "application/octet-stream"

# Around a chunk of BLAKE3, a piece of uvicorn's, a leaf of the xxh3 tree, and several of each.
LENGTHS = [0, 1, 1024, 1025, 65_535, 65_536, 65_537, 131_072, 131_073, 1_000_003]


def content(nbytes: int) -> bytes:
    return bytes(i % 251 for i in range(nbytes))


def ask(client: httpx.Client, body: Any, media_type: str = RAW, **query: str) -> dict[str, Any]:
    answer = client.post("/hash", content=body, params=query, headers={"content-type": media_type})
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"items", "elapsed_ms"}
    assert answer.json()["elapsed_ms"] >= 0
    (item,) = answer.json()["items"]
    return item


def refusal(
    client: httpx.Client, body: Any, media_type: str = RAW, **query: str
) -> tuple[int, str]:
    answer = client.post("/hash", content=body, params=query, headers={"content-type": media_type})
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].removeprefix("urn:mmhash:problem:")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("nbytes", LENGTHS)
def test_bytes_have_the_library_s_digest_and_key(
    client: httpx.Client, nbytes: int, algorithm: str
) -> None:
    body = content(nbytes)
    assert ask(client, body, algorithm=algorithm) == {
        "name": None,
        "kind": "bytes",
        "dtype": "",
        "shape": [],
        "nbytes": nbytes,
        "algorithm": algorithm,
        "digest": mmhash.digest(body, algorithm=algorithm).hex(),
        "key": mmhash.key(body, algorithm=algorithm).hex(),
    }


@pytest.mark.parametrize("nbytes", [0, 11, 13, 24])
def test_a_tensor_of_another_length_is_refused(client: httpx.Client, nbytes: int) -> None:
    for body in (bytes(nbytes), iter([bytes(nbytes)])):
        refused = refusal(client, body, dtype="float16", shape="2,3")
        assert refused == (422, "invalid-tensor")


def test_a_length_that_is_not_the_tensor_s_is_refused_before_the_body_comes(server: Any) -> None:
    answer = server.send_raw(
        b"POST /hash?dtype=uint8&shape=7 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"
        b"Content-Type: application/octet-stream\r\nContent-Length: 8\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 422 ")


def test_a_tensor_larger_than_any_memory_is_refused(client: httpx.Client) -> None:
    shape = ",".join([str(2**63 - 1)] * 32)
    assert refusal(client, b"", dtype="float16", shape=shape) == (422, "invalid-tensor")


@pytest.mark.parametrize(
    "media_type", ["image/png", "image/x-unheard-of", "video/mp4", "audio/wav; rate=8000"]
)
def test_a_media_file_is_hashed_as_its_bytes(client: httpx.Client, media_type: str) -> None:
    body = content(100_000)
    assert ask(client, body, media_type) == ask(client, body)
    assert ask(client, body, media_type, of="bytes") == ask(client, body)


def test_content_encoding_identity_is_accepted(client: httpx.Client) -> None:
    headers = {"content-type": RAW, "content-encoding": "identity"}
    assert client.post("/hash", content=b"abc", headers=headers).status_code == 200


def test_the_declared_image_format_does_not_matter(client: httpx.Client) -> None:
    body = encode_noise("PNG")
    one, other = (ask(client, body, f"image/{name}", of="pixels") for name in ("jpeg", "png"))
    assert one.pop("memo") in {"hit", "miss"}  # as above
    assert other.pop("memo") == "hit"
    assert one == other


@pytest.mark.parametrize("media_type", [RAW, "video/mp4", "audio/wav"])
def test_only_an_image_has_pixels(client: httpx.Client, media_type: str) -> None:
    assert refusal(client, b"abc", media_type, of="pixels") == (422, "invalid-query")


@pytest.mark.parametrize("media_type", ["image/png", "video/mp4", "audio/wav"])
def test_only_raw_bytes_are_a_tensor(client: httpx.Client, media_type: str) -> None:
    refused = refusal(client, b"abc", media_type, dtype="uint8", shape="3")
    assert refused == (422, "invalid-tensor")
