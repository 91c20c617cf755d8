"""Sends random prompts through vLLM's own cache managers, and prints what they would reuse.

`python vllm_caches.py SEED PROMPTS` runs in the environment of a vLLM. Each line is a JSON object:
a prompt and how many tokens the engine would reuse, or the KV events of computing the prompt.
"""

import base64
import json
import math
import random
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

VOCABULARY = 1000
HEAD: Any = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}


def full(block_size: int) -> Any:
    return FullAttentionSpec(block_size=block_size, **HEAD)


def window(block_size: int, tokens: int) -> Any:
    return SlidingWindowSpec(block_size=block_size, sliding_window=tokens, **HEAD)


def mamba(block_size: int, mode: str = "align") -> Any:
    return MambaSpec(
        block_size=block_size, shapes=((1,),), dtypes=(torch.float32,), mamba_cache_mode=mode
    )


CACHES = {
    "full": [full(4)],
    "a window": [full(4), window(4, 9)],
    "two windows": [full(4), window(4, 9), window(4, 17)],
    "only windows": [window(4, 9), window(4, 17)],
    "a window of one token": [full(4), window(4, 1)],
    "large full blocks": [full(8), window(4, 9)],
    "large window blocks": [full(4), window(8, 20)],
    "all states": [full(4), mamba(4, "all")],
    "states at blocks": [full(4), mamba(4)],
    "states within blocks": [full(4), mamba(16)],
    "large blocks and states": [full(16), mamba(16)],
    "states and a window": [full(4), mamba(8), window(4, 9)],
    "states and large window blocks": [full(4), mamba(8), window(8, 9)],
    "three sizes": [full(8), mamba(16), mamba(32)],
}


class Sizes(NamedTuple):
    """How many tokens vLLM schedules together, and how many it hashes together."""

    scheduled: int
    hashed: int


def sizes_of(specs: list[Any]) -> Sizes:
    """Do what `resolve_kv_cache_block_sizes` does, without an engine's configuration."""
    sizes = [spec.block_size for spec in specs]
    scheduled = math.lcm(*sizes)
    has_all = any(getattr(spec, "mamba_cache_mode", "align") != "align" for spec in specs)
    return Sizes(scheduled, scheduled if has_all else math.gcd(*sizes))


def compute(manager: Any, request: Any, hit: int, blocks: Any, ends: list[int]) -> bool:
    """Compute a prompt in chunks with these ends. Return False if the cache is too small."""
    at = hit
    for end in ends:
        manager.new_step_starts()
        reused = (hit, blocks) if at == hit else ()
        if manager.allocate_slots(request, end - at, *reused) is None:
            return False
        at = request.num_computed_tokens = end
    return True


def run(name: str, specs: list[Any], seed: str, prompts: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(name + seed)
    scheduled, hashed = sizes_of(specs)
    groups = [KVCacheGroupSpec([str(number)], spec) for number, spec in enumerate(specs)]
    manager = KVCacheManager(
        KVCacheConfig(rng.choice([40, 80, 200]), kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=4096,
        scheduler_block_size=scheduled,
        hash_block_size=hashed,
        enable_kv_cache_events=True,
    )
    hasher = get_request_block_hasher(hashed, sha256_cbor)
    stems: list[list[int]] = [[]] * 4
    running: list[Any] = []
    for number in range(prompts):
        stem = rng.choice(stems)
        new = [rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, 40))]
        ids = (stem[: rng.randrange(len(stem) + 1)] + new)[:150]
        if rng.random() < 0.3:
            stems[rng.randrange(4)] = ids
        request = Request(
            str(number), ids, SamplingParams(max_tokens=16), None, block_hasher=hasher
        )
        blocks, hit, _ = manager.get_computed_blocks(request)
        yield {"cache": name, "ids": ids, "block_size": hashed, "hit": hit}
        # As in the scheduler, chunks end where states can be kept.
        ends = {rng.randrange(1, len(ids) + 1), len(ids)}
        ends = {end // scheduled * scheduled for end in ends} | {len(ids)}
        if compute(manager, request, hit, blocks, sorted(end for end in ends if end > hit)):
            running.append(request)
            for _ in range(rng.randrange(12)):
                request.append_output_token_ids(rng.randrange(VOCABULARY))
                manager.new_step_starts()
                if manager.allocate_slots(request, 1) is None:
                    break
                request.num_computed_tokens += 1
            if rng.random() < 0.7:
                manager.free(running.pop(rng.randrange(len(running))))
        else:
            manager.free(request)
            while running:
                manager.free(running.pop())
        batch = msgspec.msgpack.encode([0.0, manager.take_events(), None])
        yield {"batch": base64.b64encode(batch).decode()}


def main(seed: str, prompts: str) -> None:
    init_none_hash(sha256_cbor)
    for name, specs in CACHES.items():
        for line in run(name, specs, seed, int(prompts)):
            print(json.dumps(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
