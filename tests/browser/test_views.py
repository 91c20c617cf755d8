"""All pages in a real Chromium: the prompt's plan, the fleet, and what every page must offer.

The fleet is `mmhash gateway` before two small engines, which publish real KV events over zmq.
"""

import json
import re
import time
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
from tests.support.service import TIMEOUT_S, serving
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
def service(model: Path) -> Iterator[str]:
    with serving(settings={"models": {"tiny": str(model)}}) as running:
        yield running.url


@pytest.fixture(scope="module")
def chat() -> str:
    """The request that the pages begin with."""
    script = (
        Path(__file__).parents[2] / "service" / "mmhash_service" / "page" / "example.js"
    ).read_text()
    image = "".join(
        line.strip(' "+;') for line in script.split("IMAGE =")[1].split(";")[0].split("\n")
    )
    parts = [
        {"type": "text", "text": "Which colour is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
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
def pages(service: str, fleet: str) -> dict[str, str]:
    """The addresses of all pages."""
    return {"keys": service, "prompt": f"{service}/prompt", "fleet": f"{fleet}/fleet"}


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
        expect(tab.get_by_role("table")).to_be_visible()
    elif name == "prompt":
        expect(tab.get_by_role("combobox", name="model")).to_have_value("tiny")
        tab.get_by_role("button", name="Plan").click()
        expect(tab.get_by_role("heading", name="Plan")).to_be_visible()
    else:
        tab.get_by_role("button", name="Rank the workers").click()
        expect(tab.get_by_text("whole blocks. The first worker")).to_be_visible()


PAGES = ["keys", "prompt", "fleet"]


def test_a_prompt_is_drawn_as_its_plan_says(tab: Page, service: str, chat: str) -> None:
    fill(tab, "prompt", f"{service}/prompt")
    engine = tab.get_by_role("combobox", name="engine").input_value()
    query = {"model": "tiny", "engine": engine, "block_size": "16"}
    headers = {"content-type": "application/json"}
    answer = httpx.post(
        f"{service}/plan", params=query, content=chat, headers=headers, timeout=TIMEOUT_S
    )
    plan = answer.json()
    (item,) = plan["items"]
    count = len(plan["token_ids"])
    of_image = item["end"] - item["start"]
    expect(tab.locator("#summary")).to_have_text(
        f"{count} tokens: {count - of_image} of text, {of_image} of 1 item. "
        f"{len(plan['blocks'])} whole blocks of 16 tokens."
    )
    drawn = tab.get_by_role("list", name="Blocks").get_by_role("listitem")
    expect(drawn).to_have_count(-(-count // 16))
    keys = drawn.locator("code").all_inner_texts()
    assert keys[: len(plan["blocks"])] == [f"{key[:12]}…" for key in plan["blocks"]]
    tokens = tab.locator(".bar > .item-0").evaluate_all(
        "(all) => all.map((one) => Number(one.style.flexGrow))"
    )
    assert sum(tokens) == of_image
    expect(tab.get_by_role("list", name="Colours")).to_contain_text(item["key"][:12])


def test_a_prompt_without_a_plan_has_the_reason_next_to_its_field(tab: Page, service: str) -> None:
    tab.goto(f"{service}/prompt")
    expect(tab.get_by_role("combobox", name="model")).to_have_value("tiny")
    tab.get_by_label("as JSON").fill("{")
    tab.get_by_role("button", name="Plan").click()
    expect(tab.get_by_role("alert")).not_to_be_empty()
    expect(tab.get_by_role("heading", name="Plan")).to_be_hidden()


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
    hits = tab.locator("#hits .value")
    expect(hits).not_to_be_empty()  # drawn: the page counts from its first sample on
    headers = {"content-type": "application/json"}
    with httpx.Client(base_url=fleet, headers=headers, timeout=60) as client:
        for _ in range(3):
            client.post("/v1/chat/completions", content=chat).raise_for_status()
    expect(hits).to_have_text(re.compile(r"^[1-9]\d?%$"))


def test_the_workers_are_ranked_for_a_request(tab: Page, fleet: str) -> None:
    """In the order of the gateway's answer, which depends on the requests of other tests."""
    with tab.expect_response("**/route") as answer:
        fill(tab, "fleet", f"{fleet}/fleet")
    workers = answer.value.json()["workers"]
    assert sorted(worker["matched_tokens"] for worker in workers) == [0, 80]
    ranked = tab.locator("#ranking tr")
    expect(ranked).to_have_count(2)
    for row, worker in zip(ranked.all(), workers, strict=True):
        expect(row.get_by_role("rowheader")).to_have_text(worker["url"])
        expect(row.locator("td").first).to_have_text(str(worker["matched_tokens"]))


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360], ids=["desktop", "phone"])
def test_pictures_of_the_pages(
    browser: Browser, pages: dict[str, str], chat: str, pytestconfig: pytest.Config,
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
        if name != "prompt":
            send_some(pages, chat)
            expect(tab.locator(".charts path").first).to_have_attribute("d", re.compile("L"))
        taken = tab.screenshot(full_page=True)
    path = folder / f"{name}-{scheme}-{'phone' if width == 360 else 'desktop'}.png"
    with Image.open(BytesIO(taken)) as image:
        assert image.width == width
        image.convert("RGB").quantize(128).save(path, optimize=True)
    assert path.stat().st_size < 150_000


def send_some(pages: dict[str, str], chat: str) -> None:
    """Send requests to the service and the gateway, for their charts."""
    url = pages["fleet"].removesuffix("/fleet")
    image = encoded(sunset(), "PNG")
    requests: list[tuple[str, bytes | str, str]] = [
        (f"{pages['keys']}/hash?of=pixels", image, "image/png"),
        (f"{url}/v1/chat/completions", chat, "application/json"),
    ]
    for _ in range(20):
        for target, body, kind in requests:
            headers = {"content-type": kind}
            answer = httpx.post(target, content=body, headers=headers, timeout=TIMEOUT_S)
            answer.raise_for_status()
        time.sleep(0.1)
