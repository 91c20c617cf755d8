"""A digest of pieces: the same however they are cut, and wherever they are hashed."""

import asyncio
import random
from typing import Any

import httpx
import pytest

import mmhash
from mmhash.digest import ALGORITHMS
from mmhash_service.app import create_app
from mmhash_service.bodies.stream import BACKGROUND_BYTES, BATCH, AlignedHasher, BackgroundHasher
from mmhash_service.runtime.capacity import SPARE_REQUESTS, STREAM_BYTES, Limits
from mmhash_service.settings import Settings

CONTENT = bytes(at % 251 for at in range(3 * BATCH + 12_345))


def cut(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    pieces, at = [], 0
    while at < len(CONTENT):
        step = rng.choice([1, 1000, 65_535, 65_536, 65_537, 256_000, BATCH + 1])
        pieces.append(CONTENT[at : at + step])
        at += step
    return pieces


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(5))
def test_how_it_is_cut_does_not_matter(seed: int, algorithm: Any) -> None:
    stream = AlignedHasher(algorithm)
    for piece in cut(seed):
        stream.update(piece)
    assert stream.length == len(CONTENT)
    assert stream.digest() == mmhash.digest(CONTENT, algorithm=algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(5))
def test_by_a_thread_it_is_the_same(seed: int, algorithm: Any) -> None:
    stream = AlignedHasher(algorithm)

    async def feed() -> None:
        beside = BackgroundHasher(stream)
        for piece in cut(seed):
            waiting = beside.take(piece)
            if waiting is not None:
                await waiting
        await beside.finish()

    asyncio.run(feed())
    assert stream.digest() == mmhash.digest(CONTENT, algorithm=algorithm)


def test_threads_are_for_few_calls_and_where_there_is_room() -> None:
    limits = Limits(Settings(max_held_bytes=BACKGROUND_BYTES + STREAM_BYTES))
    assert limits.has_spare_capacity(BACKGROUND_BYTES)
    with limits.admit(), limits.admit():
        assert not limits.has_spare_capacity(BACKGROUND_BYTES)
    limits.calls = SPARE_REQUESTS + 1
    assert not limits.has_spare_capacity(1)


def test_a_long_body_is_hashed_by_a_thread() -> None:
    app = create_app(Settings())

    async def ask() -> Any:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as inside:
            body = CONTENT + CONTENT
            headers = {"content-type": "application/octet-stream"}
            query = f"?dtype=uint8&shape={len(body)}"
            return [
                (await inside.post("/hash" + q, content=body, headers=headers)).json()["items"][0]
                for q in ("", query)
            ]

    plain, tensor = asyncio.run(ask())
    assert plain["digest"] == tensor["digest"] == mmhash.digest(CONTENT + CONTENT).hex()
    assert app.state.limits.held == 0
