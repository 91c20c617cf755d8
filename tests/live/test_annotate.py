"""What a request from /annotate finds in a running engine's prefix cache."""

import base64
import io
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
from fastapi.testclient import TestClient

from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.live import prompts
from tests.live.engines import Engine, only
from tests.live.prompts import IMAGE_TEXT, Media, image

RELEASES = ("vllm@0.32.0", "sglang@0.5.23")


class Web(NamedTuple):
    """A server of files, by their paths."""

    host: str
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    """A local server from which the service and the engine fetch."""
    files: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files[self.path]
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Web(f"127.0.0.1:{server.server_port}", files)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def service(web: Web) -> Iterator[TestClient]:
    """A service that signs with the guard's secret and may fetch from this machine."""
    settings = Settings.model_validate(
        {
            "tag_secrets": [prompts.SECRET.hex()],
            "url_hosts": [web.host],
            "url_networks": ["127.0.0.0/8"],
        }
    )
    with TestClient(create_app(settings)) as client:
        yield client


def _send(
    engine: Engine, service: TestClient, body: dict[str, Any], *, of: str = "pixels"
) -> tuple[int, dict[str, Any]]:
    """Send a request as /annotate returns it. Return its cached tokens and the request."""
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


# Writes random frames to a file with the library by which the engine reads it.
_FILM = """
import sys, cv2, numpy
writer = cv2.VideoWriter(sys.argv[1], cv2.VideoWriter.fourcc(*"MJPG"), 4, (112, 112))
for _ in range(8):
    writer.write(numpy.random.default_rng().integers(0, 256, (112, 112, 3), "uint8"))
writer.release()
"""


def _encode(engine: Engine, path: str, program: str) -> str:
    subprocess.run([engine.environment.command("python"), "-c", program, path], check=True)
    return path


@only("vllm")
def test_videos(engine: Engine, service: TestClient, tmp_path: Path) -> None:
    film = Path(_encode(engine, str(tmp_path / "film.avi"), _FILM)).read_bytes()
    url = f"data:video/avi;base64,{base64.b64encode(film).decode()}"
    body = _body(engine, text="e" * 100)
    body["messages"][0]["content"].insert(0, {"type": "video_url", "video_url": {"url": url}})
    assert _send(engine, service, body)[0] == 0
    assert _send(engine, service, body)[0] > 0


def test_images_by_url(engine: Engine, service: TestClient, web: Web) -> None:
    picture, text = image(), "f" * 100
    host, files = web
    buffer = io.BytesIO()
    picture.frames[0].save(buffer, "PNG")
    files[f"/{engine.name}.png"] = buffer.getvalue()
    url = f"http://{host}/{engine.name}.png"
    body = _body(engine, picture, text=text)
    if engine.name == "vllm":
        body["messages"][0]["content"][0]["image_url"]["url"] = url
    else:
        body["image_data"] = [url]
    assert _send(engine, service, body)[0] == 0
    # Send the same pixels in the request itself.
    inline = _body(engine, picture.as_format("BMP"), text=text)
    assert _send(engine, service, inline)[0] >= picture.tokens
