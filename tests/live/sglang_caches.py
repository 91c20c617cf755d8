"""Random prompts through SGLang's own cache: its KV events, and what it would reuse.

Runs in the environment of an SGLang, on a CPU: `python sglang_caches.py SEED PROMPTS`. Each line is a
JSON object: a prompt with the tokens that the cache has, or the KV events of storing it.
"""

import base64
import json
import random
import sys
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import torch
from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateDType, Mamba2StateShape
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import (
    HybridReqToTokenPool,
    MHATokenToKVPool,
    ReqToTokenPool,
)
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import get_context

VOCABULARY = 1000
TOKENS = 400
WINDOW = 9
POOL: Any = {"dtype": torch.float32, "device": "cpu", "enable_memory_saver": False}
HEAD: Any = {"head_num": 1, "head_dim": 1}
REQUESTS: Any = {"size": 8, "max_context_len": 512, "device": "cpu", "enable_memory_saver": False}


class Kind(NamedTuple):
    """The components of a cache, and the tokens of its pages."""

    page: int
    components: tuple[Any, ...] = (ComponentType.FULL,)


CACHES = {
    "full": Kind(1),
    "full pages": Kind(4),
    "a window": Kind(1, (ComponentType.FULL, ComponentType.SWA)),
    "states": Kind(1, (ComponentType.FULL, ComponentType.MAMBA)),
}


def requests(kind: Kind) -> Any:
    if ComponentType.MAMBA not in kind.components:
        return ReqToTokenPool(**REQUESTS)
    shape = Mamba2StateShape.create(
        tp_world_size=1, intermediate_size=8, n_groups=1, num_heads=1,
        head_dim=8, state_size=4, conv_kernel=4,
    )  # fmt: skip
    dtype = Mamba2StateDType(conv=torch.float32, temporal=torch.float32)
    return HybridReqToTokenPool(
        mamba_size=16,
        mamba_spec_state_size=8,
        cache_params=Mamba2CacheParams(shape=shape, layers=[0], dtype=dtype),
        mamba_layer_ids=[0],
        enable_mamba_extra_buffer=False,
        **REQUESTS,
    )


def allocator(kind: Kind) -> Any:
    size = TOKENS // 2 if ComponentType.SWA in kind.components else TOKENS
    rest = (torch.float32, "cpu")
    if ComponentType.SWA in kind.components:
        layers = {"swa_attention_layer_ids": [0], "full_attention_layer_ids": [1]}
        swa = SWAKVPool(size=TOKENS, size_swa=size, page_size=kind.page, **layers, **HEAD, **POOL)
        return SWATokenToKVPoolAllocator(TOKENS, size, kind.page, *rest, swa, False)
    pool = MHATokenToKVPool(size=size, page_size=kind.page, layer_num=1, **HEAD, **POOL)
    if kind.page == 1:
        return TokenToKVPoolAllocator(size, *rest, pool, False)
    return PagedTokenToKVPoolAllocator(size, kind.page, *rest, pool, False)


class Cache:
    """A cache of SGLang with its pools."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.requests, self.tokens = requests(kind), allocator(kind)
        has_window = ComponentType.SWA in kind.components
        self.tree = UnifiedRadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=self.requests,
                token_to_kv_pool_allocator=self.tokens,
                page_size=kind.page,
                enable_kv_cache_events=True,
                sliding_window_size=WINDOW if has_window else None,
                tree_components=kind.components,
            )
        )

    def match(self, ids: list[int]) -> Any:
        return self.tree.match_prefix(MatchPrefixParams(key=self._key(ids)))

    def store(self, ids: list[int], found: Any) -> None:
        """Store a computed prompt after the part that was found, and evict for its place."""
        hit = found.device_prefix_len
        lock = self.tree.lock(found.last_device_node)
        needed = len(ids) - hit
        places = self.tokens.alloc(needed)
        if places is None:
            self.tree.evict(EvictParams(num_tokens=needed, swa_num_tokens=needed))
            places = self.tokens.alloc(needed)
        if places is not None:
            known = self.tree.path_device_indices(found.last_device_node)[:hit]
            self.tree.insert(
                InsertParams(
                    key=self._key(ids),
                    value=torch.cat([known, places]),
                    prev_prefix_len=hit,
                    mamba_value=self._state(),
                )
            )
        self.tree.unlock(lock)

    def _state(self) -> Any:
        if ComponentType.MAMBA not in self.kind.components:
            return None
        state = self.requests.mamba_allocator.alloc(1)
        if state is None:
            self.tree.evict(EvictParams(mamba_num=1))
            state = self.requests.mamba_allocator.alloc(1)
        return state

    def _key(self, ids: list[int]) -> Any:
        return RadixKey(array("q", ids), None)


def run(name: str, kind: Kind, seed: str, prompts: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(name + seed)
    cache = Cache(kind)
    stems: list[list[int]] = [[]] * 4
    for _ in range(prompts):
        stem = rng.choice(stems)
        if rng.random() < 0.5:
            stem = stem[: rng.randrange(len(stem) + 1)]
        new = [rng.randrange(VOCABULARY) for _ in range(rng.randrange(kind.page, 40))]
        ids = (stem + new)[:150]
        ids = ids[: len(ids) // kind.page * kind.page]  # the cache stores whole pages
        if rng.random() < 0.3:
            stems[rng.randrange(4)] = ids
        found = cache.match(ids)
        hit = found.device_prefix_len
        yield {"cache": name, "ids": ids, "block_size": kind.page, "hit": hit}
        if hit < len(ids):
            cache.store(ids, found)
        if rng.random() < 0.05:
            cache.tree.evict(EvictParams(swa_num_tokens=rng.randrange(50), mamba_num=1))
        batch = msgspec.msgpack.encode([0.0, cache.tree.take_events(), None])
        yield {"batch": base64.b64encode(batch).decode()}


def main(seed: str, prompts: str) -> None:
    # The steps at which a model's config lets states be kept: here at every token.
    get_context().override_server_args(_mamba_cache_chunk_size=1).install()
    for name, kind in CACHES.items():
        for line in run(name, kind, seed, int(prompts)):
            print(json.dumps(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
