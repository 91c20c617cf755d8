"""precompute() on items with the fields of the engine's own."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash.engines import sglang
from mmhash.executor import AsyncHasher

FEATURE = torch.arange(600_000, dtype=torch.float32).reshape(600, 1000)


@dataclass
class OlderItem:
    """An item as releases before 0.5.10 have it: without set_hash."""

    feature: Any = None
    precomputed_embeddings: Any = None
    hash: int | None = None
    pad_value: int | None = None
    offsets: list[tuple[int, int]] = field(default_factory=list)
    model_specific_data: dict[str, Any] = field(default_factory=dict)


class NewerItem(OlderItem):
    """An item that computes its own pad values."""

    def set_hash(self, number: int) -> None:
        self.hash, self.pad_value = number, -1


def precompute(items: list[Any], **options: Any) -> None:
    async def main() -> None:
        async with AsyncHasher() as one:
            await sglang.precompute(items, one, **options)
            assert one.stats()[:4] == (0, 0, 0, 0)

    asyncio.run(main())


def test_who_has_all_is_left_alone() -> None:
    item = OlderItem(feature=FEATURE, hash=5, pad_value=77)
    precompute([item])
    assert (item.hash, item.pad_value) == (5, 77)


class Handle:
    """The engine's handle of memory elsewhere, which it opens itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.fail(f"touched: {name}")


def test_the_engines_handles_are_left_alone() -> None:
    items = [
        OlderItem(feature=Handle()),
        OlderItem(feature=[FEATURE, Handle()]),
        OlderItem(feature=[]),
        OlderItem(),
    ]
    precompute(items)
    assert {(item.hash, item.pad_value) for item in items} == {(None, None)}
    known = OlderItem(feature=Handle(), hash=9)
    precompute([known])
    assert known.pad_value == sglang.pad_values(9)[0]


def test_an_item_with_set_hash_has_it_called() -> None:
    item, hashed = NewerItem(precomputed_embeddings=FEATURE), NewerItem(feature=FEATURE, hash=5)
    precompute([item, hashed])
    assert (item.hash, item.pad_value) == (mmhash.key(FEATURE).u64, -1)
    assert (hashed.hash, hashed.pad_value) == (5, -1)


@pytest.mark.parametrize("version", ["0.4.9", "0.5.9", "0.5.22", "0.5.23"])
def test_an_item_without_set_hash(version: str) -> None:
    item = OlderItem(feature=np.ones(9))
    precompute([item], version=version)
    pads = sglang.pad_values(mmhash.key(np.ones(9)), version=version)
    assert item.pad_value == pads[0]
    assert getattr(item, "pad_values", tuple(pads)) == tuple(pads)


def test_what_has_no_key_is_left_to_the_engine() -> None:
    items = [OlderItem(feature=np.array([None])), OlderItem(feature=FEATURE)]
    precompute(items)
    assert items[0].hash is None
    assert items[1].hash == mmhash.key(FEATURE).u64


def test_tenants() -> None:
    item = OlderItem(feature=FEATURE)
    precompute([item], tenant=bytes(32))
    assert item.hash == mmhash.key(FEATURE, tenant=bytes(32)).u64


def test_a_closed_hasher_is_an_error() -> None:
    async def main() -> None:
        one = AsyncHasher()
        await one.close()
        with pytest.raises(mmhash.MMHashError, match="closed"):
            await sglang.precompute([OlderItem(feature=FEATURE)], one)

    asyncio.run(main())
