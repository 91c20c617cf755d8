"""Engines in one call: the key as each spells it, padded ids, and the keys of blocks."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

import mmhash
from mmhash import engines
from mmhash_service.api.problems import PROBLEMS

Items = Callable[[httpx.Response], list[dict[str, Any]]]
Problem = Callable[[httpx.Response], tuple[int, str]]

RAW = {"content-type": "application/octet-stream"}
KEY = mmhash.key(b"abc")
IDS = list(range(1, 41))


def test_each_engine_that_is_asked_for_is_in_each_item(
    client: httpx.Client, items_of: Items
) -> None:
    names = ["sglang@0.5.23", "sglang@0.4.3", "vllm", "trtllm", "dynamo@1.6.0", "lmcache"]
    params = {"engines": ",".join(names)}
    (item,) = items_of(client.post("/hash", content=b"abc", headers=RAW, params=params))
    assert item["engines"] == {name: engines.request_fields(KEY, name) for name in names}


@pytest.mark.parametrize("names", ["x", "sglang@9", "@", ",", "vllm,", "sglang@0.5.23 "])
def test_an_engine_that_is_not_known_is_refused(
    client: httpx.Client, problem_of: Problem, names: str
) -> None:
    answer = client.post("/hash", content=b"abc", headers=RAW, params={"engines": names})
    assert problem_of(answer) == (422, "unknown-engine")


def test_an_engine_that_takes_no_hash_is_refused(client: httpx.Client, problem_of: Problem) -> None:
    answer = client.post("/hash", content=b"abc", headers=RAW, params={"engines": "lmdeploy"})
    assert problem_of(answer) == (422, "no-field")


@pytest.mark.parametrize("version", ["0.4.3", "0.5.9", "0.5.23", None])
def test_pad_fills_spans_as_the_library_does(client: httpx.Client, version: str | None) -> None:
    spans = [
        {"start": 2, "end": 9, "key": KEY.hex()},
        {"start": 20, "end": 21, "hash": "00000000000000ff"},
    ]
    body = {"engine": "sglang", "version": version, "input_ids": IDS, "spans": spans}
    answer = client.post("/pad", json=body)
    wanted = engines.sglang.pad_input_ids(
        IDS, [(2, 9, KEY), (20, 21, 0xFF)], version=version or engines.sglang.LATEST
    )
    assert answer.json() == {"input_ids": wanted}


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
    assert client.post("/blocks", json=body).json() == {"blocks": wanted}


def test_blocks_of_vllm_bind_the_items_in_them(client: httpx.Client) -> None:
    spans = [
        {"start": 20, "end": 25, "key": mmhash.key(b"d").hex()},
        {"start": 2, "end": 9, "key": KEY.hex()},
    ]
    body = {
        "engine": "vllm",
        "version": "0.31.0",
        "input_ids": IDS,
        "block_size": 16,
        "spans": spans,
        "cache_salt": "s",
    }
    items = [
        engines.vllm.Span(KEY.hex(), 2, 7),
        engines.vllm.Span(mmhash.key(b"d").hex(), 20, 5),
    ]
    wanted = engines.vllm.block_keys(IDS, 16, items=items, cache_salt="s", version="0.31.0")
    assert client.post("/blocks", json=body).json() == {"blocks": [key.hex() for key in wanted]}


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
    assert client.post("/blocks", json=body).json() == {"blocks": wanted}


PAD = {"engine": "sglang", "input_ids": IDS, "spans": []}
BLOCKS = {"engine": "vllm", "input_ids": IDS, "block_size": 8}


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/pad", PAD | {"engine": "vllm"}, "invalid-json"),
        ("/pad", PAD | {"version": "9"}, "unknown-engine"),
        ("/pad", PAD | {"version": "x" * 2000}, "invalid-json"),
        ("/pad", PAD | {"input_ids": [-1]}, "invalid-json"),
        ("/pad", PAD | {"input_ids": [0.5]}, "invalid-json"),
        ("/pad", PAD | {"spans": [{"start": 0, "end": 1}]}, "invalid-span"),
        ("/pad", PAD | {"spans": [{"start": 0, "end": 1, "hash": "-1"}]}, "invalid-json"),
        (
            "/pad",
            PAD | {"spans": [{"start": 0, "end": 99, "key": "0" * 64}]},
            "refused-by-engine",
        ),
        ("/blocks", BLOCKS | {"block_size": 0}, "invalid-json"),
        ("/blocks", BLOCKS | {"version": "0.18.0"}, "refused-by-engine"),
        ("/blocks", BLOCKS | {"extra_key": "e"}, "refused-by-engine"),
        ("/blocks", BLOCKS | {"engine": "trtllm"}, "invalid-json"),
        (
            "/blocks",
            BLOCKS | {"spans": [{"start": 0, "end": 1, "hash": "0" * 16}]},
            "invalid-span",
        ),
        (
            "/blocks",
            BLOCKS | {"engine": "sglang", "version": "0.5.19", "cache_salt": "s"},
            "refused-by-engine",
        ),
        ("/blocks", BLOCKS | {"engine": "dynamo", "input_ids": [2**32] * 8}, "refused-by-engine"),
    ],
)
def test_what_an_engine_does_not_take_is_refused(
    client: httpx.Client, problem_of: Problem, path: str, body: Any, problem: str
) -> None:
    assert problem_of(client.post(path, json=body)) == (PROBLEMS[problem].status, problem)


@pytest.mark.parametrize("path", ["/pad", "/blocks"])
def test_these_calls_take_json_alone(client: httpx.Client, problem_of: Problem, path: str) -> None:
    assert problem_of(client.post(path, content=b"{}", headers=RAW)) == (415, "not-json")
