"""A digest does not depend on how its content arrives."""

import asyncio
import random
from typing import Any

import httpx
import pytest

import mmhash
from mmhash.digest import ALGORITHMS
from mmhash_service.http.app import create_app
from mmhash_service.items.readers import AlignedHasher
from mmhash_service.settings import Settings

CONTENT = (bytes(range(251)) * 13_000)[: (3 << 20) + 12_345]


def cut(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    pieces, at = [], 0
    while at < len(CONTENT):
        step = rng.choice([1, 1000, 65_535, 65_536, 65_537, 256_000, 1_048_577])
        pieces.append(CONTENT[at : at + step])
        at += step
    return pieces


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(5))
def test_the_digest_does_not_depend_on_the_pieces(seed: int, algorithm: Any) -> None:
    stream = AlignedHasher(algorithm)
    for piece in cut(seed):
        stream.update(piece)
    assert stream.length == len(CONTENT)
    assert stream.digest() == mmhash.digest(CONTENT, algorithm=algorithm)


def test_a_long_body_has_the_digest_of_the_library() -> None:
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
    assert app.state.resources.limits.held == 0
