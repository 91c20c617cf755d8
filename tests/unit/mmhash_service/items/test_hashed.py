"""Keys in each engine's spelling, padded token ids, and block keys."""

from typing import Any

import httpx
import pytest

import mmhash
from mmhash import engines
from mmhash_service.problems.catalogue import PROBLEMS
from tests.support.responses import items_of, problem_of

RAW = {"content-type": "application/octet-stream"}
KEY = mmhash.key(b"abc")
IDS = list(range(1, 41))


def test_each_item_is_named_for_each_requested_engine(client: httpx.Client) -> None:
    names = ["sglang@0.5.23", "sglang@0.4.3", "vllm", "trtllm", "dynamo@1.6.0"]
    params = {"engines": ",".join(names)}
    (item,) = items_of(client.post("/hash", content=b"abc", headers=RAW, params=params))
    assert item["engines"] == {name: engines.request_fields(KEY, name) for name in names}


def test_blocks_of_sglang_are_the_pages_of_the_padded_ids(client: httpx.Client) -> None:
    body = {
        "engine": "sglang",
        "input_ids": IDS,
        "block_size": 8,
        "spans": [{"start": 2, "end": 9, "key": KEY.hex()}],
        "cache_salt": "s",
        "extra_key": "e",
    }
    padded = engines.sglang.pad_input_ids(IDS, [(2, 9, KEY)])
    wanted = engines.sglang.page_keys(padded, 8, cache_salt="s", extra_key="e")
    event_names = engines.sglang.event_keys(padded, 8, cache_salt="s")
    assert client.post("/blocks", json=body).json() == {
        "blocks": wanted,
        "event_ids": [engines.sglang.event_id(name) for name in event_names],
    }


@pytest.mark.parametrize("extra", [{}, {"extra_key": "e"}])
def test_event_ids_of_sglang_ignore_the_extra_key(
    client: httpx.Client, extra: dict[str, str]
) -> None:
    body = {"engine": "sglang", "input_ids": IDS, "block_size": 8, **extra}
    names = engines.sglang.page_keys(IDS, 8)
    answer = client.post("/blocks", json=body).json()
    assert answer["event_ids"] == [engines.sglang.event_id(name) for name in names]
    assert (answer["blocks"] == names) == (not extra)


def vllm_blocks(keys: list[bytes]) -> dict[str, list[Any]]:
    return {
        "blocks": [key.hex() for key in keys],
        "event_ids": [engines.vllm.event_id(key) for key in keys],
    }


@pytest.mark.parametrize(
    ("release", "fields", "options"),
    [
        ("0.32.0", {}, {"block_algorithm": "sha256"}),
        ("0.18.0", {"seed": "0"}, {"block_algorithm": "sha256", "seed": "0"}),
        ("0.32.0", {"block_algorithm": "sha256_cbor"}, {"block_algorithm": "sha256_cbor"}),
        (
            "0.32.0",
            {"block_algorithm": "xxhash", "seed": "7"},
            {"block_algorithm": "xxhash", "seed": "7"},
        ),
        (
            "0.32.0",
            {"lora": "l", "lora_path": "/l"},
            {"lora": engines.vllm.Lora("l", "/l")},
        ),
        ("0.29.0", {"lora": "l"}, {"lora": engines.vllm.Lora("l", "")}),
        ("0.33.0", {"lookahead": 1}, {"lookahead": 1}),
    ],
)
def test_blocks_of_vllm_depend_on_its_start_options(
    client: httpx.Client, release: str, fields: dict[str, Any], options: dict[str, Any]
) -> None:
    body = {"engine": f"vllm@{release}", "input_ids": IDS, "block_size": 8, **fields}
    wanted = engines.vllm.block_keys(IDS, 8, version=release, **options)
    assert client.post("/blocks", json=body).json() == vllm_blocks(wanted)


def test_blocks_of_dynamo_are_chained(client: httpx.Client) -> None:
    body = {
        "engine": "dynamo",
        "input_ids": IDS,
        "block_size": 8,
        "spans": [{"start": 7, "end": 17, "key": KEY.hex()}],
    }
    name = f"{KEY.u64:016x}"
    blocks = engines.dynamo.block_keys(IDS, 8, items=[[name], [name], [name]])
    wanted = engines.dynamo.sequence_keys(blocks)
    ids = [int(block, 16) for block in blocks]
    assert client.post("/blocks", json=body).json() == {"blocks": wanted, "event_ids": ids}
    plain = {"engine": "dynamo", "input_ids": IDS, "block_size": 8, "lora": "l"}
    of_lora = engines.dynamo.block_keys(IDS, 8, lora="l")
    answer = client.post("/blocks", json=plain).json()
    assert answer["blocks"] == engines.dynamo.sequence_keys(of_lora)


PAD = {"engine": "sglang", "input_ids": IDS, "spans": []}
BLOCKS = {"engine": "vllm", "input_ids": IDS, "block_size": 8}


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/pad", PAD | {"engine": "sglang@9"}, "unknown-engine"),
        ("/pad", PAD | {"version": "0.5.23"}, "invalid-json"),
        ("/pad", PAD | {"input_ids": [0.5]}, "invalid-json"),
        ("/pad", PAD | {"spans": [{"start": 0, "end": 1, "hash": "-1"}]}, "invalid-json"),
        ("/blocks", BLOCKS | {"block_size": 0}, "invalid-json"),
        ("/blocks", BLOCKS | {"lora": "l"}, "refused-by-engine"),
        (
            "/blocks",
            BLOCKS | {"engine": "sglang", "block_algorithm": "sha256"},
            "refused-by-engine",
        ),
        (
            "/blocks",
            BLOCKS | {"engine": "dynamo", "lora": "l", "lora_path": "p"},
            "refused-by-engine",
        ),
        ("/blocks", BLOCKS | {"engine": "dynamo", "input_ids": [2**32] * 8}, "refused-by-engine"),
    ],
)
def test_an_argument_that_the_engine_does_not_take_is_refused(
    client: httpx.Client, path: str, body: Any, problem: str
) -> None:
    assert problem_of(client.post(path, json=body)) == (PROBLEMS[problem].status, problem)


@pytest.mark.parametrize("path", ["/pad", "/blocks"])
def test_pad_and_blocks_take_json_only(client: httpx.Client, path: str) -> None:
    assert problem_of(client.post(path, content=b"{}", headers=RAW)) == (
        415,
        "unsupported-media-type",
    )
