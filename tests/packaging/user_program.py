"""A user's program, for `mypy --strict`: each public name has a type, in any installation."""

from collections.abc import Sequence
from pathlib import Path
from typing import assert_type

import numpy as np

import mmhash
from mmhash import engines
from mmhash.kvindex import Index, Match, Worker
from mmhash.prompts import Model, Plan
from mmhash.transport import SharedTensor


def keys_of(images: Sequence[bytes], secret: bytes) -> list[mmhash.Digest]:
    """Return the keys of images for a tenant."""
    one = mmhash.key(images[0], algorithm="xxh3", tenant=secret)
    assert_type(one, mmhash.Digest)
    assert_type(mmhash.Digest.fromhex(one.hex(), algorithm=one.algorithm), mmhash.Digest)
    assert_type(mmhash.key_file(Path("a.png"), of="pixels"), mmhash.Digest)
    assert_type(mmhash.Hasher("blake3").update(b"a").hexdigest(), str)
    return mmhash.keys(list(images), tenant=secret)


def names_of(pixels: "np.ndarray[tuple[int, ...], np.dtype[np.float16]]") -> list[int]:
    """Return SGLang's pad values of the first item of a bundle."""
    key = mmhash.key(mmhash.split(pixels, counts=[1, 3])[0])
    assert_type(engines.vllm.uuid(key), str)
    assert_type(engines.vllm.block_keys([1, 2], 2, version="vllm@0.32.0"), list[bytes])
    assert_type(engines.sglang.page_keys([1, 2], 2, version="0.5.23"), list[str])
    return mmhash.pad_values(key, "sglang@0.5.23")


def plan_of(request: dict[str, object]) -> Plan:
    """Return the plan of a request, and print who has its blocks."""
    try:
        plan = Model.load("/models/tiny").plan(request, engine="vllm@0.32.0")
    except mmhash.InputError as error:
        raise SystemExit(str(error)) from error
    with Index([Worker("http://10.0.0.7:8000", events="tcp://10.0.0.7:5557")]) as index:
        assert_type(index.match(plan.event_ids), dict[str, Match])
    return plan


def hashed_by_the_service(pixels: bytes) -> str:
    """Return a key from the service."""
    with mmhash.Client("http://127.0.0.1:8780") as client:
        (item,) = client.hash([pixels], engines=["sglang@0.5.23"])
        assert_type(item.key, mmhash.Digest)
        with SharedTensor.create(np.zeros(3)) as shared:
            print(shared.handle())
        return item.key.hex()


async def hashed_beside_the_loop(items: list[bytes]) -> list[mmhash.Digest]:
    """Return keys, computed in threads."""
    async with mmhash.AsyncHasher() as hasher, mmhash.AsyncClient() as client:
        await client.hash(items)
        return await hasher.keys(items, algorithm="blake3")
