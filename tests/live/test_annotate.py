"""The effect of /annotate in a running engine's prefix cache."""

import base64
import io
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mmhash_service.app import create_app
from mmhash_service.settings import Settings
from tests.live import prompts
from tests.live.engines import Engine, only
from tests.live.prompts import IMAGE_TEXT, Media, image, video

RELEASES = ("vllm@0.32.0", "vllm@0.30.0", "sglang@0.5.23")

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "parameters": {"type": "object", "properties": {"uuid": {"type": "string"}}},
        },
    }
]


@pytest.fixture(scope="module")
def service() -> Iterator[TestClient]:
    """The service, which signs with the guard's secret and fetches from this machine."""
    settings = Settings(
        tag_secrets=(prompts.SECRET.hex(),),
        url_hosts=("127.0.0.1",),
        url_networks=("127.0.0.0/8",),
    )
    with TestClient(create_app(settings)) as client:
        yield client


def _send(
    engine: Engine, service: TestClient, body: dict[str, Any], *, of: str = "pixels"
) -> tuple[int, dict[str, Any]]:
    """Send a request as /annotate returns it; return its cached tokens, and the request."""
    query = {"engine": engine.spelling, "of": of, "sign": "1"}
    answer = service.post("/annotate", params=query, json=body)
    assert answer.status_code == 200, answer.text[:2000]
    annotated: dict[str, Any] = answer.json()["request"]
    sent = prompts.post(engine, annotated, guarded=engine.guard == "switched")
    assert sent.status_code == 200, sent.text[:2000]
    return prompts.cached(sent.json()), annotated


def _body(engine: Engine, *media: Media, text: str, **members: Any) -> dict[str, Any]:
    if engine.name == "vllm":
        parts = [prompts.part(one, None) for one in media]
        content = [*parts, {"type": "text", "text": text}]
        messages = [{"role": "user", "content": content}]
        return {"model": "tiny", "max_tokens": 1, "messages": messages} | members
    urls = [one.url for one in media]
    sampling = {"max_new_tokens": 1}
    return {
        "text": IMAGE_TEXT * len(media) + text,
        "image_data": urls,
        "sampling_params": sampling,
    } | members


def test_formats_share_a_prefix_by_pixels(engine: Engine, service: TestClient) -> None:
    picture, text = image(), "a" * 100
    bmp = picture.as_format("BMP")
    assert _send(engine, service, _body(engine, picture, text=text))[0] == 0
    assert _send(engine, service, _body(engine, bmp, text=text))[0] >= picture.tokens


def test_formats_do_not_share_by_bytes(engine: Engine, service: TestClient) -> None:
    picture, text = image(), "b" * 100
    bmp = picture.as_format("BMP")
    assert _send(engine, service, _body(engine, picture, text=text), of="bytes")[0] == 0
    assert _send(engine, service, _body(engine, bmp, text=text), of="bytes")[0] == 0
    again = _send(engine, service, _body(engine, picture, text=text), of="bytes")[0]
    assert again >= picture.tokens


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("mm_processor_kwargs", {"max_pixels": 50176}, {"max_pixels": 100352}),
        ("media_io_kwargs", {"image": {"rgba_background_color": [0, 0, 0]}}, None),
    ],
)
@only("vllm")
def test_options_have_keys_of_their_own(
    engine: Engine, service: TestClient, name: str, one: Any, other: Any
) -> None:
    picture, text = image(), "c" * 100
    first = _body(engine, picture, text=text, **{name: one})
    second = _body(engine, picture, text=text, **({} if other is None else {name: other}))
    assert _send(engine, service, first)[0] == 0
    assert _send(engine, service, second)[0] == 0
    assert _send(engine, service, first)[0] >= picture.tokens
    assert _send(engine, service, second)[0] >= picture.tokens


@only("vllm")
def test_tools_stay(engine: Engine, service: TestClient) -> None:
    picture, text = image(), "d" * 100
    body = _body(engine, picture, text=text, tools=TOOLS, tool_choice="none")
    assert _send(engine, service, body)[0] == 0
    cached, annotated = _send(engine, service, body)
    assert cached >= picture.tokens
    assert annotated["tools"] == TOOLS


@only("vllm")
def test_videos(engine: Engine, service: TestClient) -> None:
    film, text = video(), "e" * 100
    body = _body(engine, film, text=text)
    assert _send(engine, service, body)[0] == 0
    assert _send(engine, service, body)[0] > 0


def test_images_by_url(engine: Engine, service: TestClient) -> None:
    picture, text = image(), "f" * 100
    with _served(picture) as url:
        body = _body(engine, picture, text=text)
        if engine.name == "vllm":
            body["messages"][0]["content"][0]["image_url"]["url"] = url
        else:
            body["image_data"] = [url]
        assert _send(engine, service, body)[0] == 0
    # The same pixels, sent in the request.
    inline = _body(engine, picture.as_format("BMP"), text=text)
    assert _send(engine, service, inline)[0] >= picture.tokens


class _served:  # noqa: N801  (used as a function)
    """Serves an image on a free port until the block ends."""

    def __init__(self, media: Media) -> None:
        buffer = io.BytesIO()
        media.frames[0].save(buffer, "PNG")
        content = buffer.getvalue()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "image/png")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_address[1]}/image.png"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@only("vllm")
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_other_chat_routes(engine: Engine, service: TestClient, path: str) -> None:
    """/annotate takes chat requests only; these routes pass through without hashes."""
    if path not in engine.client.get("/openapi.json").json()["paths"]:
        pytest.skip(f"{engine.spelling} has no {path}")
    picture = image()
    data = picture.url.partition(",")[2]
    if path == "/v1/responses":
        part: dict[str, Any] = {"type": "input_image", "image_url": picture.url}
        body = {
            "model": "tiny",
            "max_output_tokens": 1,
            "store": False,
            "input": [{"role": "user", "content": [part]}],
        }
    else:
        source = {"type": "base64", "media_type": "image/png", "data": data}
        part = {"type": "image", "source": source}
        body = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": [part]}]}
    answer = service.post("/annotate", params={"engine": engine.spelling}, json=body)
    print(path, answer.status_code, answer.text[:300])
    sent = engine.post(path, body)
    print(sent.status_code, sent.text[:600])
    assert sent.status_code == 200
    assert base64.b64decode(data)
