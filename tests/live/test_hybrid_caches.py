"""The index and vLLM's own cache managers agree on what is cached.

MMHASH_CACHE_PROMPTS is the number of prompts for each kind of cache.
"""

import base64
import json
import os
import subprocess
from pathlib import Path

from mmhash.engines import vllm
from mmhash.kvindex.events import parse_batch
from mmhash.kvindex.rank import Rank
from mmhash.kvindex.table import BlockTable
from tests.live.environments import Environment

PROMPTS = int(os.environ.get("MMHASH_CACHE_PROMPTS", "120"))
RELEASE = "0.32.0"


def test_an_index_matches_what_each_kind_of_cache_reuses() -> None:
    environment = Environment("vllm", RELEASE)
    environment.build_or_skip()
    done = subprocess.run(
        [
            environment.command("python"),
            str(Path(__file__).with_name("vllm_caches.py")),
            *("1", str(PROMPTS)),
        ],
        env={"PATH": os.environ["PATH"], "VLLM_LOGGING_LEVEL": "ERROR"},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    ranks: dict[str, tuple[BlockTable, Rank]] = {}
    reused, different, cache = 0, [], ""
    for line in map(json.loads, done.stdout.splitlines()):
        if "batch" in line:
            ranks[cache][1].apply(parse_batch(base64.b64decode(line["batch"])), is_live=False)
            continue
        cache, size, ids = line["cache"], line["block_size"], line["ids"]
        if cache not in ranks:
            table = BlockTable(1 << 20)
            ranks[cache] = table, Rank(cache, 0, table)
        table, rank = ranks[cache]
        # The engine computes the last token of each prompt.
        keys = vllm.block_keys(ids[:-1], size, version=RELEASE, block_algorithm="sha256_cbor")
        runs = table.match([vllm.event_id(key) for key in keys])
        found = runs.get(rank.holder or 0, 0) * size
        reused += line["hit"] > 0
        if found != line["hit"]:
            different.append((cache, len(ids), found, line["hit"]))
    assert not different, f"{len(different)} different, first {different[:3]}"
    assert reused > len(ranks) * PROMPTS // 10
