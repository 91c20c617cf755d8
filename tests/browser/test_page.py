"""The page in a real Chromium, before a real server."""

import json
from io import BytesIO
from typing import Any

import pytest
from blake3 import blake3
from PIL import Image
from playwright.sync_api import BrowserContext, Locator, Page, expect

import mmhash
from mmhash.engines import request_fields
from mmhash.engines.registry import known
from tests.support.service import serving

pytestmark = pytest.mark.slow

API_KEY = "zweiter Schl\u00fcssel"


def newest() -> list[str]:
    """Return the newest release of each engine, as `vllm@0.33.0`."""
    return [f"{name}@{known[-1].split(' to ')[-1]}" for name, known in known().items()]


def picture(size: tuple[int, int] = (48, 32), blue: int = 90) -> Image.Image:
    """A gradient, no two of its pixels equal."""
    width, height = size
    pixels = [(x * 255 // width, y * 255 // height, blue) for y in range(height) for x in range(width)]  # fmt: skip
    image = Image.new("RGB", size)
    image.putdata(pixels)
    return image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    body = BytesIO()
    image.save(body, kind, **options)
    return body.getvalue()


PHOTO = encoded(picture())
HALF = PHOTO[: len(PHOTO) // 2]


def chooser(page: Page) -> Locator:
    return page.get_by_label("Drop images here")


def cards(page: Page) -> Locator:
    return page.get_by_role("list", name="Images").get_by_role("listitem")


def wait_for(page: Page, number: int) -> None:
    """Until so many images are there and none of them is still being hashed."""
    expect(cards(page)).to_have_count(number)
    expect(cards(page).filter(has_text="Hashing")).to_have_count(0)


def choose(page: Page, **files: bytes) -> None:
    """Choose files, `photo_png=…` as photo.png, and wait until they are hashed."""
    there = cards(page).count()
    chooser(page).set_input_files(
        [
            {
                "name": name.replace("_", "."),
                "mimeType": f"image/{name.rpartition('_')[2]}",
                "buffer": content,
            }
            for name, content in files.items()
        ]
    )
    wait_for(page, there + len(files))


def values(card: Locator) -> dict[str, str]:
    """The texts of the card, by name."""
    names = card.locator("dt").all_inner_texts()
    return dict(zip(names, card.locator("code").all_inner_texts(), strict=True))


def clipboard(page: Page) -> str:
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_a_chosen_image_shows_its_digests_its_key_and_each_engine_s_spelling(
    tab: Page, url: str
) -> None:
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(url)
    choose(tab, photo_png=PHOTO)
    card = cards(tab).first
    image = picture()
    expected = {}
    for of, content, key in (
        ("bytes", PHOTO, mmhash.key(PHOTO)),
        ("pixels", image.tobytes(), mmhash.key(image)),
    ):
        expected[f"digest of the {of}"] = mmhash.digest(content).hex()
        expected[f"key of the {of}"] = key.hex()
        for engine in newest():
            for field, value in request_fields(key, engine).items():
                text = value if isinstance(value, str) else json.dumps(value)
                expected[f"{engine} {field} of the {of}"] = text
    assert values(card) == expected
    expect(card.get_by_role("img")).to_have_js_property("naturalWidth", 48)
    expect(card).to_contain_text(f"48 \u00d7 32 · {len(PHOTO)} bytes · ")
    assert all(at.startswith((url, "blob:")) for at in asked)  # and nobody else


def test_a_picture_can_be_pasted(page: Page) -> None:
    choose(page, photo_png=PHOTO)
    cards(page).get_by_role("img").evaluate(
        """async (image) => {
          const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
          canvas.getContext("2d").drawImage(image, 0, 0);
          const blob = await canvas.convertToBlob();
          await navigator.clipboard.write([new ClipboardItem({ [blob.type]: blob })]);
        }"""
    )
    page.keyboard.press("ControlOrMeta+V")
    wait_for(page, 2)
    pasted = values(cards(page).last)["key of the pixels"]
    # The clipboard keeps the picture and not its file; some have an alpha channel for each.
    assert pasted in {mmhash.key(picture().convert(mode)).hex() for mode in ("RGB", "RGBA")}


def test_the_keyboard_is_enough(page: Page) -> None:
    def focused() -> Locator:
        return page.locator(":focus")

    # From here on no dialog opens: what `expect_file_chooser` switches on may come after the key.
    page.on("filechooser", lambda _: None)
    page.keyboard.press("Tab")
    expect(focused()).to_have_accessible_name("Keys")
    page.keyboard.press("Tab")
    for name in ("Fleet", "API"):
        expect(focused()).to_have_accessible_name(name)
        page.keyboard.press("Tab")
    expect(chooser(page)).to_be_focused()
    expect(page.locator("#drop")).to_have_css("outline-style", "solid")
    for number, key in enumerate(("Enter", "Space"), 1):
        with page.expect_file_chooser() as opened:
            page.keyboard.press(key)
        file = {"name": "photo.png", "mimeType": "image/png", "buffer": PHOTO}
        opened.value.set_files([file])
        wait_for(page, number)
    names = ["Remove 1. photo.png", "Copy digest of the bytes"]
    for name in names:
        page.keyboard.press("Tab")
        expect(focused()).to_have_accessible_name(name)
        expect(focused()).to_have_css("outline-style", "solid")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("Copied: digest of the bytes.")
    assert clipboard(page) == mmhash.digest(PHOTO).hex()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    expect(cards(page)).to_have_count(1)
    expect(chooser(page)).to_be_focused()


def test_the_page_says_why_a_file_is_refused(page: Page) -> None:
    file = {"name": "note.txt", "mimeType": "text/plain", "buffer": b"no image"}
    chooser(page).set_input_files([file])
    choose(page, broken_png=HALF, photo_png=PHOTO)
    text, broken, good = cards(page).all()
    expect(text).to_contain_text("Unsupported media type. ")
    assert values(text) == {}
    expect(broken).to_contain_text("Damaged media. ")
    assert values(broken)["digest of the bytes"] == mmhash.digest(HALF).hex()
    assert "key of the pixels" not in values(broken)
    assert values(good)["key of the pixels"] == mmhash.key(picture()).hex()


def test_the_page_says_that_the_service_does_not_answer(page: Page) -> None:
    page.context.set_offline(True)
    try:
        choose(page, photo_png=PHOTO)
    finally:
        page.context.set_offline(False)
    expect(cards(page)).to_contain_text("No response. The service cannot be reached")
    choose(page, photo_png=PHOTO)
    assert values(cards(page).last)["key of the pixels"] == mmhash.key(picture()).hex()


def test_a_file_s_name_is_text_and_nothing_foreign_runs(page: Page, complaints: list[str]) -> None:
    name = "<img src=x onerror=document.title=1>.png"
    file = {"name": name, "mimeType": "image/png", "buffer": PHOTO}
    chooser(page).set_input_files([file, file])
    wait_for(page, 2)
    expect(cards(page).first.get_by_role("heading")).to_have_text(f"1. {name}")
    assert complaints == []
    foreign = [
        "document.body.innerHTML = '<img src=x onerror=document.title=2>'",
        "document.body.append(Object.assign(document.createElement('script'), { text: 'alert(3)' }))",
        "document.body.append(Object.assign(document.createElement('img'), { src: 'http://a.test' }))",
    ]
    for code in foreign:
        with page.expect_console_message(
            lambda message: "violates" in message.text or "requires" in message.text
        ):
            page.evaluate(f"() => {{ try {{ {code} }} catch {{}} }}")
    expect(page).to_have_title("mmhash")
    assert len(complaints) == len(foreign)
    complaints.clear()


def test_the_page_asks_for_an_api_key_and_keeps_it_for_the_tab(
    tab: Page, context: BrowserContext
) -> None:
    digests = json.dumps([blake3(API_KEY.encode()).hexdigest()])
    field = tab.get_by_label("This service requires an API key.")
    with serving("--set", f"api_key_digests={digests}") as service:
        tab.goto(service.url)
        expect(field).to_be_visible()
        choose(tab, photo_png=PHOTO)
        expect(cards(tab)).to_contain_text("Unauthorized. ")
        field.fill("wrong")
        field.press("Enter")
        expect(tab.locator("#api-key-problem")).to_contain_text("Unauthorized. ")
        expect(tab.locator("#status")).to_be_empty()
        expect(field).to_be_visible()
        field.fill(API_KEY)
        field.press("Enter")
        expect(field).to_be_hidden()
        choose(tab, photo_png=PHOTO)
        assert values(cards(tab).last)["key of the pixels"] == mmhash.key(picture()).hex()
        tab.reload()
        expect(field).to_be_hidden()
        with context.new_page() as other:
            other.goto(service.url)
            expect(other.get_by_label("This service requires an API key.")).to_be_visible()
        assert context.storage_state()["origins"] == []
        assert context.cookies() == []
