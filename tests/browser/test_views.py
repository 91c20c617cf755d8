"""The pages in a real Chromium: the fleet, and pictures of each page.

The fleet is `mmhash gateway` before two small engines, which publish real KV events over zmq.
"""

import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image, ImageOps
from playwright.sync_api import Browser, Page, expect

from mmhash.prompts import Model
from tests.support.gateway import engines, gateway_before
from tests.support.kv_publisher import Publisher, stored
from tests.support.prompt_models import write_qwen2_vl
from tests.support.service import TIMEOUT_S
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    body = BytesIO()
    image.save(body, kind, **options)
    return body.getvalue()


def sunset() -> Image.Image:
    """A gradient with few colours, so that pictures of it are small."""
    down = Image.linear_gradient("L").resize((480, 320))
    across = Image.linear_gradient("L").rotate(90).resize((480, 320))
    return ImageOps.posterize(Image.merge("RGB", (across, down, Image.new("L", (480, 320), 90))), 3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen2_vl(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def chat() -> str:
    """A request of five blocks."""
    url = (
        f"data:image/png;base64,{b64encode(encoded(Image.new('RGB', (224, 168)), 'PNG')).decode()}"
    )
    parts = [
        {"type": "text", "text": "Which colour is this?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    return json.dumps({"model": "model", "messages": [{"role": "user", "content": parts}]})


@pytest.fixture(scope="module")
def fleet(model: Path, chat: str) -> Iterator[str]:
    """The URL of a gateway. Its first worker has stored all blocks of the chat."""
    plan = Model.load(model).plan(json.loads(chat), engine="vllm@0.32.0", block_size=16)
    with ExitStack() as stack:
        started = stack.enter_context(engines(2))
        publishers = [stack.enter_context(Publisher()) for _ in started]
        workers = [
            f"{engine.url},events={publisher.events},replay={publisher.replay},engine=vllm@0.32.0"
            for engine, publisher in zip(started, publishers, strict=True)
        ]
        settings = {"models": {"tiny": str(model)}}
        gateway = stack.enter_context(gateway_before(workers, settings=settings))
        client = stack.enter_context(gateway.new_client())

        def state(name: str) -> list[Any]:
            return [one[name] for one in client.get("/workers").json()["workers"]]

        wait_until(lambda: all(state("connected")))
        publishers[0].publish(stored(*plan.event_ids), time=time.time())
        publishers[1].publish(stored(1, 2), time=time.time())
        wait_until(lambda: state("blocks") == [5, 2])
        yield gateway.url


@pytest.fixture(scope="module")
def pages(url: str, fleet: str) -> dict[str, str]:
    """The addresses of all pages."""
    return {"keys": url, "fleet": f"{fleet}/fleet"}


def fill(tab: Page, name: str, url: str) -> None:
    """Open a page, and bring it to the state that its picture shows."""
    tab.goto(url)
    if name == "keys":
        files = {
            "sunset.png": encoded(sunset(), "PNG"),
            "sunset.webp": encoded(sunset(), "WEBP", lossless=True),
        }
        tab.get_by_label("Drop images here").set_input_files(
            [
                {"name": at, "mimeType": f"image/{at[7:]}", "buffer": body}
                for at, body in files.items()
            ]
        )
        expect(tab.get_by_role("list", name="Images").get_by_role("listitem")).to_have_count(2)
        expect(tab.get_by_text("Hashing")).to_have_count(0)
    else:
        expect(tab.locator("#workers tr")).to_have_count(2)


def test_the_fleet_follows_the_gateway(tab: Page, fleet: str, chat: str) -> None:
    tab.goto(f"{fleet}/fleet")
    workers = httpx.get(f"{fleet}/workers", timeout=TIMEOUT_S).json()["workers"]
    shown = tab.locator("#workers tr")
    expect(shown).to_have_count(2)
    for row, worker in zip(shown.all(), workers, strict=True):
        expect(row.get_by_role("rowheader")).to_have_text(worker["url"])
        # Other tests have sent prompts, whose blocks these engines never publish.
        expect(row).to_contain_text(re.compile("healthy|wrong block names"))
        expect(row.locator("td").nth(6)).to_have_text(
            f"{worker['blocks']} \N{MULTIPLICATION SIGN} 16"
        )
    headers = {"content-type": "application/json"}
    with httpx.Client(base_url=fleet, headers=headers, timeout=60) as client:
        for _ in range(3):
            client.post("/v1/chat/completions", content=chat).raise_for_status()
    expect(tab.locator("#workers td:nth-child(7)").first).to_have_text(re.compile(r"^[1-9]\d?%$"))


@pytest.mark.parametrize("name", ["keys", "fleet"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360], ids=["desktop", "phone"])
def test_pictures_of_the_pages(
    browser: Browser, pages: dict[str, str], pytestconfig: pytest.Config,
    tmp_path: Path, name: str, scheme: Any, width: int,
) -> None:  # fmt: skip
    """With `--pictures docs/pictures` they are kept there."""
    kept = pytestconfig.getoption("--pictures", None)
    folder = Path(kept) if kept else tmp_path
    folder.mkdir(exist_ok=True)
    size: Any = {"width": width, "height": 800}
    with browser.new_page(viewport=size, color_scheme=scheme) as tab:
        tab.set_default_timeout(1000 * TIMEOUT_S)
        fill(tab, name, pages[name])
        taken = tab.screenshot(full_page=True)
    path = folder / f"{name}-{scheme}-{'phone' if width == 360 else 'desktop'}.png"
    with Image.open(BytesIO(taken)) as image:
        assert image.width == width
        image.convert("RGB").quantize(128).save(path, optimize=True)
    assert path.stat().st_size < 150_000
