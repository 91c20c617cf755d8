"""vLLM names images itself, and the gateway computes the same names: it changes no request.

`LIVE_IMAGES=500` sends more images.
"""

import base64
import io
import json
import os
import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from PIL import ExifTags, Image

from tests.live.engines import Engine, only
from tests.support.gateway import gateway_before
from tests.support.origin import Origin
from tests.support.service import Service

RELEASES = ("vllm@0.28.0", "vllm@0.30.0", "vllm@0.32.0")
WITHOUT_GUARD = True
IMAGES = int(os.environ.get("LIVE_IMAGES", "24"))

# The modes that Pillow can write, in formats whose size a plan can read.
MODES = {
    "JPEG": ("RGB", "L", "CMYK"),
    "PNG": ("RGB", "L", "1", "P", "LA", "RGBA"),
    "WEBP": ("RGB", "RGBA"),
    "GIF": ("RGB", "L", "P"),
    "BMP": ("RGB", "L", "P", "1"),
    "TIFF": ("RGB", "L", "P", "1"),
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"mm_processor_kwargs": {"max_pixels": 50176}},
    {"mm_processor_kwargs": {"images_kwargs": {"min_pixels": 12544}, "max_pixels": 100352}},
    {"media_io_kwargs": {"image": {"rgba_background_color": [0, 0, 255]}}},
)


class Sample(NamedTuple):
    name: str
    file: bytes
    options: dict[str, Any]


def samples(count: int) -> Iterator[Sample]:
    """Yield images in all formats and modes, with options for processing them."""
    rng = random.Random(37)
    kinds = [(kind, mode) for kind, modes in MODES.items() for mode in modes]
    for number in range(count):
        kind, mode = kinds[number % len(kinds)]
        size = (rng.randint(40, 300), rng.randint(40, 300))
        image = Image.effect_noise(size, rng.uniform(10, 90)).convert("RGB").convert(mode)
        options: dict[str, Any] = {}
        if mode in {"LA", "RGBA"}:
            image.putalpha(rng.randint(1, 254))
        if kind == "PNG" and mode in {"RGB", "L", "P"} and rng.random() < 0.5:
            options["transparency"] = (7, 7, 7) if mode == "RGB" else 0
        if kind in {"JPEG", "PNG", "WEBP", "TIFF"} and rng.random() < 0.6:
            exif = Image.Exif()
            exif[ExifTags.Base.Orientation] = rng.randint(1, 8)
            if rng.random() < 0.6:
                exif[ExifTags.Base.ImageID] = f"{rng.getrandbits(128):032x}"
            options["exif"] = exif
        file = io.BytesIO()
        image.save(file, kind, **options)
        yield Sample(f"{kind} {mode}", file.getvalue(), rng.choice(OPTIONS))


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    origin = Origin()
    yield origin
    origin.close()


@pytest.fixture(scope="module")
def gateway(engine: Engine, origin: Origin) -> Iterator[Service]:
    worker = engine.url
    if engine.environment.release != "0.32.0":  # which reports where it publishes
        worker += f",events={engine.events.endpoint}"
    if engine.seed is not None:
        worker += f",seed={engine.seed}"
    settings = {
        "models": {"tiny": str(engine.environment.model("qwen2_vl"))},
        "url_hosts": [f"127.0.0.1:{origin.port}"],
        "url_networks": ["127.0.0.0/8"],
        "gateway.health_timeout_s": "30",
    }
    with gateway_before([worker], settings=settings) as service:
        yield service


def chat(url: str, number: int, options: dict[str, Any]) -> bytes:
    """Return a chat as one of several clients would write it."""
    text = f"Image {number}. " + "What is it? " * 30
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
    body = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": parts}]}
    return json.dumps(body | options, indent=number % 3 or None).encode()


@only("vllm")
def test_all_blocks_of_images_are_known(engine: Engine, gateway: Service, origin: Origin) -> None:
    engine_takes_options = engine.environment.release == "0.32.0"
    with gateway.new_client() as client:
        for number, sample in enumerate(samples(IMAGES)):
            url = f"data:image/x;base64,{base64.b64encode(sample.file).decode()}"
            if number % 4 == 0:
                origin.answers[f"/{number}"] = Origin.ok(sample.file)
                url = f"http://127.0.0.1:{origin.port}/{number}"
            body = chat(url, number, sample.options if engine_takes_options else {})
            assert forwarded(client, body) == body, sample.name
            answer = client.post("/v1/chat/completions", content=body, headers=JSON)
            assert answer.status_code == 200, f"{sample.name}: {answer.text[:500]}"
            routed = wait_for_blocks(client, body, engine.block_size)
            blocks, matched = routed["plan"]["blocks"], routed["workers"][0]["matched_tokens"]
            assert blocks > 3, sample.name
            assert matched == blocks * engine.block_size, (sample.name, sample.options)


JSON = {"content-type": "application/json"}


def forwarded(client: httpx.Client, body: bytes) -> bytes:
    """Return a request as its worker gets it."""
    answer = client.post("/route?path=/v1/chat/completions", content=body, headers=JSON).content
    start = answer.index(b'"request":') + len(b'"request":')
    return answer[start : answer.rindex(b',"plan":')]


def wait_for_blocks(client: httpx.Client, body: bytes, block_size: int) -> dict[str, Any]:
    """Return the decision for a request once its blocks' events have come, or after a while."""
    until = time.monotonic() + 5
    while True:
        routed: dict[str, Any] = client.post("/route", content=body, headers=JSON).json()
        assert routed["plan"] is not None
        matched = routed["workers"][0]["matched_tokens"]
        if matched >= routed["plan"]["blocks"] * block_size or time.monotonic() > until:
            return routed
        time.sleep(0.05)
