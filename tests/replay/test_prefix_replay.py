"""The case that started this: image a alone, a beside b, then both again.

With a key an image the second request finds image a; with a hash of the whole bundle nobody does.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash.engines import sglang
from mmhash.transport import SharedTensor
from tests.replay.radix import Prefill, RadixCache

TOKENS = 4096
MERGED = 4  # patches a token, as Qwen-VL merges them
GRID = [1, 128, 128]
PLACEHOLDER = 151655

NOISE = np.random.default_rng(11).integers(0, 256, 2 * TOKENS * MERGED * 24, dtype=np.uint8)
PATCHES = torch.from_numpy(NOISE).view(torch.bfloat16).reshape(2 * TOKENS * MERGED, 12)
A, B = PATCHES[: TOKENS * MERGED], PATCHES[TOKENS * MERGED :]

Keys = Callable[[list[torch.Tensor]], list[Any]]


def separate(images: list[torch.Tensor]) -> list[Any]:
    return list(mmhash.keys(images))


def bundled(images: list[torch.Tensor]) -> list[Any]:
    bundle = torch.concat(images)
    return list(mmhash.keys(mmhash.split(bundle, grids=[GRID] * len(images))))


def shared(images: list[torch.Tensor]) -> list[Any]:
    """In shared memory, seen through the handle alone."""
    with SharedTensor.create(torch.concat(images)) as owned:
        travelled = SharedTensor.open(json.loads(json.dumps(owned.handle())))
        return list(mmhash.keys(mmhash.split(travelled, grids=[GRID] * len(images))))


def whole_bundle(images: list[torch.Tensor]) -> list[Any]:
    """As an engine does that hashes before it splits: one hash, in every span."""
    return [sglang.hash_feature(torch.concat(images))] * len(images)


def prompt(images: list[torch.Tensor], keys: Keys, version: str) -> list[int]:
    spans: list[Any] = []
    ids: list[int] = []
    for key in keys(images):
        spans.append((len(ids), len(ids) + TOKENS, key))
        ids += [PLACEHOLDER] * TOKENS
    return sglang.pad_input_ids(ids + list(range(32)), spans, version=version)


def replay(keys: Keys, version: str) -> list[Prefill]:
    cache = RadixCache()
    return [cache.run(prompt(images, keys, version)) for images in ([A], [A, B], [A], [A, B])]


@pytest.mark.parametrize("version", ["0.5.8", "0.5.22", "0.5.23"])
@pytest.mark.parametrize("keys", [separate, bundled, shared])
def test_an_image_is_found_again_beside_another(keys: Keys, version: str) -> None:
    assert replay(keys, version) == [(4128, 0), (4128, 4096), (32, 4096), (32, 8192)]


@pytest.mark.parametrize("version", ["0.5.8", "0.5.22", "0.5.23"])
def test_with_a_hash_of_the_whole_it_is_not(version: str) -> None:
    assert replay(whole_bundle, version) == [(4128, 0), (8224, 0), (32, 4096), (32, 8192)]


def test_the_engines_own_split_finds_it_too() -> None:
    def engine_split(images: list[torch.Tensor]) -> list[Any]:
        offsets = [(index * TOKENS, (index + 1) * TOKENS - 1) for index in range(len(images))]
        grids = {"image_grid_thw": [GRID] * len(images)}
        items = sglang.split_bundle(
            sglang.Item("IMAGE", offsets, torch.concat(images), None, grids)
        )
        return [sglang.hash_feature(item.feature) for item in items]

    assert replay(engine_split, "0.5.23") == replay(bundled, "0.5.23")
