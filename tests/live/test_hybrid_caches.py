"""The index and the engines' own cache managers agree on what is cached.

MMHASH_CACHE_PROMPTS is the number of prompts for each kind of cache.
"""

import base64
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from mmhash.engines import sglang, vllm
from mmhash.kvindex.events import parse_batch
from mmhash.kvindex.rank import Rank
from mmhash.kvindex.table import BlockTable
from tests.live import fork_server
from tests.live.engines import variables_of
from tests.live.environments import Environment

PROMPTS = int(os.environ.get("MMHASH_CACHE_PROMPTS", "120"))
VLLM, SGLANG = "0.32.0", "0.5.23"


class Match(NamedTuple):
    """The tokens of a prompt that are cached by the index, and by the engine."""

    index: int
    engine: int


def _matches(engine: str, release: str) -> dict[str, list[Match]]:
    """Return the matches of random prompts for each kind of cache."""
    environment = Environment(engine, release)
    environment.build_or_skip()
    program = str(Path(__file__).with_name(f"{engine}_caches.py"))
    status, output = fork_server.run(
        [environment.command("python"), program, "1", str(PROMPTS)],
        env=variables_of() | {"VLLM_LOGGING_LEVEL": "ERROR"},
    )
    assert status == 0
    ranks: dict[str, tuple[BlockTable, Rank]] = {}
    matches: dict[str, list[Match]] = defaultdict(list)
    cache = ""
    for line in map(json.loads, output.splitlines()):
        if "batch" in line:
            ranks[cache][1].apply(parse_batch(base64.b64decode(line["batch"])), is_live=False)
            continue
        cache, size = line["cache"], line["block_size"]
        if cache not in ranks:
            table = BlockTable(1 << 20)
            ranks[cache] = table, Rank(cache, 0, table)
        table, rank = ranks[cache]
        runs = table.match(_event_ids(engine, release, line["ids"], size))
        matches[cache].append(Match(runs.get(rank.holder or 0, 0) * size, line["hit"]))
    return matches


def _event_ids(engine: str, release: str, ids: list[int], size: int) -> list[int]:
    if engine == "sglang":
        pages = sglang.page_keys(ids, size, version=release)
        return [sglang.event_id(page) for page in pages]
    # vLLM computes the last token of each prompt.
    keys = vllm.block_keys(ids[:-1], size, version=release, block_algorithm="sha256_cbor")
    return [vllm.event_id(key) for key in keys]


def test_an_index_matches_what_each_kind_of_cache_of_vllm_reuses() -> None:
    matches = _matches("vllm", VLLM)
    for cache, found in matches.items():
        assert [one for one in found if one.index != one.engine] == [], cache
    # Some kinds hardly ever reuse anything.
    reused = sum(one.engine > 0 for found in matches.values() for one in found)
    assert reused > len(matches) * PROMPTS // 10


def test_an_index_matches_what_a_cache_of_sglang_reuses() -> None:
    """SGLang publishes no events of windows and states: the index may overrate a hybrid cache."""
    matches = _matches("sglang", SGLANG)
    for cache in ("full", "full pages"):
        assert [one for one in matches[cache] if one.index != one.engine] == [], cache
    for cache in ("a window", "states"):
        assert [one for one in matches[cache] if one.index < one.engine] == [], cache
        assert any(one.index > one.engine for one in matches[cache]), cache
    assert all(sum(one.engine > 0 for one in each) > PROMPTS // 10 for each in matches.values())
