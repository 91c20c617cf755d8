"""Compares keys in the engines' own forms with bare loops of the hashes that engines use."""

import hashlib
import random

import numpy as np

from bench.support.measure import Row, compare, medians, report
from mmhash.engines import sglang, vllm

TOKENS = 32 * 1024
PAGE = 64


def rows() -> list[Row]:
    """Measure a prompt of 32k tokens with 8 images of 3500 tokens, as a gateway sees it."""
    draw = random.Random(0)
    ids = [draw.randrange(150_000) for _ in range(TOKENS)]
    array = np.array(ids, np.uint32)
    ready = array.tobytes()
    hashes = [draw.getrandbits(64) for _ in range(8)]
    starts = [10 + 4000 * index for index in range(8)]
    spans = [(start, start + 3500, item) for start, item in zip(starts, hashes, strict=True)]
    items = [vllm.Span(f"{item:064x}", start, 3500) for start, _, item in spans]
    padded = sglang.pad_input_ids(ids, spans)
    feature = np.random.default_rng(0).integers(0, 256, 20 << 20, dtype=np.uint8)

    pad, blocks, blocks_of_items, wide, gpu = (
        seconds * 1e3
        for seconds in medians(
            lambda: sglang.pad_input_ids(ids, spans),
            lambda: vllm.block_keys(ids, 16),
            lambda: vllm.block_keys(ids, 16, items=items),
            lambda: sglang.page_keys(padded, PAGE),
            lambda: sglang.gpu_hash(feature),
            rounds=21,
        )
    )
    return [
        Row("sglang.pad_input_ids, 32k ids, 8 images", pad, "ms", target="< 1"),
        *compare(
            "sglang.page_keys, 32k ids in a list",
            lambda: sglang.page_keys(ids, PAGE),
            {"bare loop": (lambda: bare_loop(np.array(ids, "<u4").tobytes()), ">= 0.8")},
            rounds=101,
        ),
        *compare(
            "sglang.page_keys, 32k ids in an array",
            lambda: sglang.page_keys(array, PAGE),
            {"bare loop, ready bytes": (lambda: bare_loop(ready), ">= 0.8")},
            rounds=101,
        ),
        Row("sglang.page_keys of padded ids", wide, "ms"),
        Row("vllm.block_keys, 32k ids, block 16", blocks, "ms", target="< 30"),
        Row("vllm.block_keys, with 8 images", blocks_of_items, "ms", target="< 30"),
        Row("sglang.gpu_hash", feature.nbytes / gpu / 1e6, "GB/s", target="> 1"),
    ]


def bare_loop(data: bytes) -> list[str]:
    """Chain sha256 hashes, which is the least work that gives the same keys."""
    digest, keys = b"", []
    for start in range(0, len(data), 4 * PAGE):
        digest = hashlib.sha256(digest + data[start : start + 4 * PAGE]).digest()
        keys.append(digest.hex())
    return keys


if __name__ == "__main__":
    report("engines", rows())
