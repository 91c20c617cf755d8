"""The service returns the library's keys, however an item is sent."""

import asyncio
import gc
import json
import os
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import mmhash
from mmhash.client import AsyncClient, shared
from mmhash.client.calls import BATCH_ITEM_MAX, BATCH_MAX_ITEMS, SHM_MIN_BYTES
from mmhash.client.exchange import Request
from mmhash.transport.segments import DIRECTORY
from tests.support.service import Service, count

NOISE = np.random.default_rng(5).integers(0, 256, 3 * SHM_MIN_BYTES, dtype=np.uint8)
MIDDLE = NOISE[: BATCH_ITEM_MAX + 1].tobytes()
IMAGE = Image.fromarray(NOISE[: 48 * 64 * 3].reshape(48, 64, 3))
ITEMS = [
    b"",
    b"abc",
    memoryview(NOISE)[::2],
    MIDDLE,
    NOISE,
    NOISE.tobytes(),
    NOISE.view(np.float16).reshape(3, -1, 8),
    np.float32(1.5),
    np.zeros((0, 3)),
    torch.from_numpy(NOISE[:600]).view(torch.bfloat16),
    torch.from_numpy(NOISE).view(torch.float8_e5m2).reshape(-1, 16).T,
    torch.ones(20, dtype=torch.complex128),
]


def address(service: Service) -> dict[str, Any]:
    """Where a client finds the service on a Unix socket."""
    return {"base_url": service.url, "uds": service.socket_path}


def encoded(image: Image.Image) -> bytes:
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def received(service: Service) -> float:
    """Return how many bytes of bodies the service has received."""
    with service.new_client() as client:
        return count(client, "mmhash_body_bytes_total")


def refused(service: Service) -> float:
    """Return how many handles the service could not open."""
    with service.new_client() as client:
        return count(client, "mmhash_problems_total", problem="invalid-handle")


@pytest.fixture(params=["TCP", "Unix socket"])
def either(request: pytest.FixtureRequest, url: str, local: Service) -> dict[str, Any]:
    """The address of a service."""
    return {"base_url": url} if request.param == "TCP" else address(local)


@pytest.mark.parametrize("algorithm", ["blake3", pytest.param("xxh3", marks=pytest.mark.slow)])
def test_each_kind_of_item_has_the_librarys_key(
    connect: Any, either: dict[str, Any], algorithm: str
) -> None:
    keys = [mmhash.key(item, algorithm=algorithm) for item in ITEMS]
    digests = [mmhash.digest(item, algorithm=algorithm) for item in ITEMS]
    with connect(**either) as client:
        together = client.hash(ITEMS, algorithm=algorithm)
        alone = [item for one in ITEMS for item in client.hash(one, algorithm=algorithm)]
    for found in (together, alone):
        assert [item.key for item in found] == keys
        assert [item.digest for item in found] == digests


def test_many_short_items_stay_in_order(connect: Any, url: str) -> None:
    items = [str(number).encode() for number in range(2 * BATCH_MAX_ITEMS + 50)]
    items[BATCH_MAX_ITEMS] = MIDDLE
    with connect(url) as client:
        found = client.hash(items)
    assert [item.key for item in found] == mmhash.keys(items)


def test_the_file_of_an_image_by_its_pixels(connect: Any, url: str) -> None:
    file = encoded(IMAGE)
    with connect(url) as client:
        (alone,) = client.hash(file, of="pixels")
        beside = client.hash([file, NOISE[:9]], of="pixels")
        (by_bytes,) = client.hash(file)
    assert alone.key == beside[0].key == mmhash.key(IMAGE)
    assert beside[1].key == mmhash.key(NOISE[:9])
    assert by_bytes.key == mmhash.key(file)


def test_a_tenant_has_keys_of_its_own(connect: Any, url: str) -> None:
    with connect(url, tenant="acme") as client:
        found = client.hash([b"abc", NOISE])
    assert [item.key for item in found] == mmhash.keys([b"abc", NOISE], tenant=b"\x11" * 32)
    with (
        connect(url, tenant="nobody") as client,
        pytest.raises(mmhash.ServiceError, match="nobody") as caught,
    ):
        client.hash(b"abc")
    assert caught.value.type == "urn:mmhash:problem:unknown-tenant"


def test_long_items_are_read_in_place_and_not_sent(connect: Any, local: Service) -> None:
    before = received(local)
    with connect(**address(local)) as client:
        for _ in range(3):
            client.hash([NOISE, NOISE.tobytes()])
        assert received(local) - before < 10_000
        client.hash(NOISE[: SHM_MIN_BYTES - 1])
        assert received(local) - before >= SHM_MIN_BYTES - 1


def test_a_service_with_other_shared_memory_is_sent_the_bytes_from_then_on(
    connect: Any, local: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shared.SharedCopy.copy

    def elsewhere(self: shared.SharedCopy, request: Request) -> Any:
        copied: Any = copy(self, request)
        content = json.loads(bytes(copied.content))
        content["items"][0]["shm"]["name"] = "mmhash-1-0000000000000000"
        return replace(copied, content=memoryview(json.dumps(content).encode()))

    monkeypatch.setattr(shared.SharedCopy, "copy", elsewhere)
    with connect(**address(local)) as client:
        before, sent = refused(local), received(local)
        for _ in range(3):
            assert client.hash([NOISE, b"abc"])[0].key == mmhash.key(NOISE)
    assert refused(local) == before + 1
    assert received(local) - sent >= 3 * NOISE.nbytes


def test_an_item_without_room_in_shared_memory_is_sent(
    connect: Any, local: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "POOL_BYTES", 1 << 46)
    before = received(local)
    with connect(**address(local)) as client:
        assert client.hash(NOISE)[0].key == mmhash.key(NOISE)
    assert received(local) - before >= NOISE.nbytes


def test_nothing_stays_in_shared_memory(connect: Any, local: Service) -> None:
    mine = f"mmhash-{os.getpid()}-*"
    gc.collect()  # collect what other tests left now, not below
    before = set(DIRECTORY.glob(mine))
    with connect(**address(local)) as client:
        client.hash(NOISE)
        with pytest.raises(mmhash.ServiceError):
            client.hash(NOISE, engines="none")
        ledger = client._shared.pool()._ledger
        assert ledger.leases() == 0
        assert set(DIRECTORY.glob(mine)) > before
    assert set(DIRECTORY.glob(mine)) == before


def test_a_call_that_is_cancelled_leaves_nothing_there(local: Service) -> None:
    async def cancel_after(seconds: float, client: AsyncClient) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(client.hash([NOISE, NOISE.tobytes()]), seconds)

    async def main() -> None:
        async with AsyncClient(**address(local)) as client:
            await client.hash(NOISE)
            for turn in range(20):
                await cancel_after(turn / 2000, client)
            ledger = client._shared.pool()._ledger
            while ledger.leases():  # noqa: ASYNC110  (the copying thread cannot be cancelled)
                await asyncio.sleep(0.01)

    asyncio.run(main())
