"""The memo: one decode per image, entries for each tenant, and hits shown in responses."""

import asyncio
import base64
from collections.abc import Callable, Coroutine, Iterator
from io import BytesIO
from typing import Any

import httpx
import pytest
from PIL import Image

import mmhash
from mmhash import Digest
from mmhash.prompts.headers import ImageHeader
from mmhash_service.http.app import create_app
from mmhash_service.memo.entries import MAX_VALUE, Fetched, Pixels
from mmhash_service.memo.memo import Memo
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from tests.support.in_process import running
from tests.support.memo import hash_pixels

ENCODED = Digest("blake3", bytes(32))
PIXELS = Pixels(1, 192, Digest("blake3", b"\1" * 32), b"extra", 6)
URL = "https://images.example.org/cat.jpg"
TENANTS = {"acme": "11" * 32, "umbrella": "22" * 32, "initech": "33" * 32}


class Decoder:
    """Gives the pixels once it may, and counts."""

    def __init__(self, pixels: Pixels = PIXELS) -> None:
        self.may = asyncio.Event()
        self.count = 0
        self.fails_with: Problem | None = None
        self._pixels = pixels

    async def __call__(self) -> Pixels:
        self.count += 1
        await self.may.wait()
        if self.fails_with is not None:
            raise self.fails_with
        return self._pixels


def run(test: Callable[[Memo, Decoder], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(Memo(Settings()), Decoder())

    asyncio.run(main())


def test_a_header_is_remembered_in_its_own_space_only() -> None:
    async def test(memo: Memo, _decode: Decoder) -> None:
        header = ImageHeader("PNG", 640, 480, 6)
        assert memo.header(b"", ENCODED) is None
        memo.keep_header(b"", ENCODED, header)
        assert memo.header(b"", ENCODED) == header
        assert memo.header(b"secret", ENCODED) is None

    run(test)


def test_an_image_is_decoded_once() -> None:
    async def test(memo: Memo, decode: Decoder) -> None:
        decode.may.set()
        assert await memo.known_pixels(b"", "blake3", ENCODED) is None
        assert await memo.pixels(b"", "blake3", ENCODED, decode) == (PIXELS, "miss")
        assert await memo.pixels(b"", "blake3", ENCODED, decode) == (PIXELS, "hit")
        assert await memo.known_pixels(b"", "blake3", ENCODED) == PIXELS
        assert decode.count == 1

    run(test)


def test_concurrent_calls_decode_an_image_once() -> None:
    async def test(memo: Memo, decode: Decoder) -> None:
        calls = [
            asyncio.create_task(memo.pixels(b"", "blake3", ENCODED, decode)) for _ in range(50)
        ]
        await asyncio.sleep(0.01)
        decode.may.set()
        assert await asyncio.gather(*calls) == [(PIXELS, "miss")] + [(PIXELS, "hit")] * 49
        assert decode.count == 1

    run(test)


def test_a_cancelled_call_does_not_cancel_the_others() -> None:
    async def test(memo: Memo, decode: Decoder) -> None:
        first, second = (
            asyncio.create_task(memo.pixels(b"", "blake3", ENCODED, decode)) for _ in range(2)
        )
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        decode.may.set()
        assert await second == (PIXELS, "hit")
        assert decode.count == 1

    run(test)


def test_a_decode_ends_when_nobody_waits_for_it() -> None:
    """No request holds its bytes, so that any number could wait for a decoder."""

    async def test(memo: Memo, decode: Decoder) -> None:
        ended = asyncio.Event()

        async def decode_long() -> Pixels:
            try:
                return await decode()
            finally:
                ended.set()

        calls = [
            asyncio.create_task(memo.pixels(b"", "blake3", ENCODED, decode_long)) for _ in range(2)
        ]
        await asyncio.sleep(0.01)
        for call in calls:
            assert not ended.is_set()
            call.cancel()
            await asyncio.wait([call])
        again = asyncio.create_task(memo.pixels(b"", "blake3", ENCODED, decode))  # of its own
        await ended.wait()
        decode.may.set()
        assert await again == (PIXELS, "miss")

    run(test)


def test_an_error_reaches_every_waiting_call_and_is_not_kept() -> None:
    async def test(memo: Memo, decode: Decoder) -> None:
        decode.fails_with = Problem("damaged-media")
        calls = [asyncio.create_task(memo.pixels(b"", "blake3", ENCODED, decode)) for _ in range(5)]
        await asyncio.sleep(0.01)
        decode.may.set()
        assert await asyncio.gather(*calls, return_exceptions=True) == [decode.fails_with] * 5
        decode.fails_with = None
        assert await memo.pixels(b"", "blake3", ENCODED, decode) == (PIXELS, "miss")

    run(test)


def test_each_space_and_algorithm_has_entries_of_its_own() -> None:
    async def test(memo: Memo, decode: Decoder) -> None:
        decode.may.set()
        for space in (b"", bytes(32)):
            assert await memo.pixels(space, "blake3", ENCODED, decode) == (PIXELS, "miss")
        assert await memo.known_pixels(b"", "xxh3", ENCODED) is None
        assert await memo.known_pixels(b"\1" * 32, "blake3", ENCODED) is None

    run(test)


def test_an_entry_that_is_too_long_is_not_kept() -> None:
    async def test(memo: Memo, _: Decoder) -> None:
        decode = Decoder(PIXELS._replace(extra=bytes(MAX_VALUE)))
        decode.may.set()
        for _ in range(2):
            assert (await memo.pixels(b"", "blake3", ENCODED, decode))[1] == "miss"

    run(test)


def test_the_result_of_a_fetch_is_remembered() -> None:
    async def test(memo: Memo, _: Decoder) -> None:
        fetched = Fetched('"a"', 7, PIXELS.digest)
        assert await memo.url(b"", URL, "blake3") is None
        memo.keep_url(b"", URL, fetched)
        assert await memo.url(b"", URL, "blake3") == fetched
        assert await memo.url(b"", URL, "xxh3") is None
        assert await memo.url(b"", URL + "#", "blake3") is None
        assert await memo.url(bytes(32), URL, "blake3") is None

    run(test)


@pytest.fixture(scope="module")
def shared() -> Iterator[httpx.Client]:
    """A service for the tests that each have images of their own."""
    with running(create_app(Settings(decoders=1, tenants=TENANTS))) as server:
        yield server.client


def test_a_hit_and_a_miss_have_the_same_answer_but_for_the_memo_field(
    shared: httpx.Client, images: list[bytes]
) -> None:
    missed, hit = (hash_pixels(shared, images[1]) for _ in range(2))
    assert (missed.pop("memo"), hit.pop("memo")) == ("miss", "hit")
    assert missed == hit


def test_an_image_is_found_again_in_whatever_form_it_arrives(
    shared: httpx.Client, images: list[bytes]
) -> None:
    image = images[2]
    data = base64.b64encode(image).decode()
    items = [
        {"kind": "image", "data": data},
        {"kind": "image", "url": f"data:image/png;base64,{data}"},
    ]
    hash_pixels(shared, image)
    found = shared.post("/hash", json={"items": items}).json()["items"]
    files = {"a": ("a.png", image, "image/png"), "b": ("b.png", images[3], "image/png")}
    found += shared.post("/hash?of=pixels", files=files).json()["items"]
    assert [item["memo"] for item in found] == ["hit", "hit", "hit", "miss"]
    wanted = mmhash.key(Image.open(BytesIO(image))).hex()
    assert [item["key"] for item in found[:3]] == [wanted] * 3


def test_tenants_share_no_entries(images: list[bytes]) -> None:
    settings = Settings(tenants=TENANTS)
    with running(create_app(settings)) as server:
        statuses = [
            hash_pixels(server.client, images[0], **{"x-mmhash-tenant": name})["memo"]
            for name in ("acme", "initech", "acme", "initech")
        ]
        statuses.append(hash_pixels(server.client, images[0])["memo"])
    assert statuses == ["miss", "miss", "hit", "hit", "miss"]
