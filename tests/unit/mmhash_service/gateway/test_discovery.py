"""What a worker's server says about itself; tests/live asks real engines."""

import asyncio
import json
from typing import Any

import pytest

from mmhash_service.gateway.discovery import (
    Adapter,
    Description,
    complete,
    describe,
    read_model_list,
)
from mmhash_service.gateway.worker_spec import EngineSpec, parse_worker

SOURCE = {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558", "topic": "kv"}
METRICS = (
    'vllm:cache_config_info{block_size="32",engine="0",mamba_block_size="None",'
    'prefix_caching_hash_algo="sha256_cbor"} 1.0\n'
)
VLLM = {"/version": {"version": "0.32.0+cpu"}, "/kv_event_sources": {"0": SOURCE}}
SGLANG = {"version": "0.5.23", "page_size": 16, "dp_size": 1}


def said(answers: dict[str, Any], metrics: str = METRICS, host: str = "a") -> Description | None:
    """Return what a server with these answers says."""

    async def get(path: bytes) -> tuple[int, bytes]:
        if path == b"/metrics":
            return 200, b"# TYPE x gauge\n" + metrics.encode()
        answer = answers.get(path.decode())
        return (404, b"{}") if answer is None else (200, json.dumps(answer).encode())

    return asyncio.run(describe(get, host))


def test_vllm_describes_itself_completely() -> None:
    sources = {rank: SOURCE | {"endpoint": f"tcp://*:{5557 + int(rank)}"} for rank in "01"}
    replays = {"replay_endpoint": "tcp://*:6001"}
    sources["0"] |= {"replay_endpoint": "tcp://*:6000"}
    engine = EngineSpec("vllm@0.32.0", 32, "sha256_cbor")
    assert said(VLLM | {"/kv_event_sources": {**sources, "1": sources["1"] | replays}}) == (
        Description(engine, "tcp://a:5557", "tcp://a:6000", 2)
    )
    ipv6 = said(VLLM, host="::1")
    assert ipv6 is not None
    assert ipv6.events == "tcp://[::1]:5557"


@pytest.mark.parametrize(
    ("sources", "reason"),
    [
        (None, "no /kv_event_sources"),
        ({}, "--kv-events-config"),
        ({"0": SOURCE | {"endpoint": "ipc:///tmp/events"}}, "consecutive TCP ports"),
        ({"0": SOURCE, "1": SOURCE}, "consecutive TCP ports"),
    ],
)
def test_missing_event_sources_of_vllm_are_named(sources: Any, reason: str) -> None:
    found = said(VLLM | {"/kv_event_sources": sources})
    assert found is not None
    assert found.events is None
    assert reason in found.lacking["events"]


def test_a_worker_cannot_send_the_gateway_to_another_host() -> None:
    source = SOURCE | {"endpoint": "tcp://victim:22", "replay_endpoint": "tcp://victim:23"}
    found = said(VLLM | {"/kv_event_sources": {"0": source}})
    assert found is not None
    assert found.publisher == ("tcp://a:22", "tcp://a:23", 1)


def test_missing_block_options_of_vllm_are_named() -> None:
    found = said(VLLM, metrics="")
    assert found is not None
    assert found.engine == EngineSpec("vllm@0.32.0")
    assert set(found.lacking) == {"block_size", "block_algorithm"}


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_sglang_describes_itself_completely(path: str) -> None:
    published = {
        "publisher": "zmq",
        "endpoint_port_base": 5557,
        "replay_endpoint_port_base": 5558,
        "block_size": 64,
        "dp_size": 2,
    }
    engine = EngineSpec("sglang@0.5.23", 64)
    assert said({path: SGLANG | {"kv_events": published}}) == Description(
        engine, "tcp://a:5557", "tcp://a:5558", 2
    )


def test_an_older_sglang_is_described_by_its_arguments() -> None:
    found = said({"/server_info": SGLANG | {"kv_events_config": json.dumps(SOURCE)}})
    engine = EngineSpec("sglang@0.5.23", 16)
    assert found == Description(engine, "tcp://a:5557", "tcp://a:5558", 1)
    silent = said({"/server_info": SGLANG})
    assert silent is not None
    assert "--kv-events-config" in silent.lacking["events"]


def test_sglang_in_rust_is_found() -> None:
    found = said({"/server_info": SGLANG | {"internal_states": [{"rust_mm_transport": "shm"}]}})
    assert found is not None
    assert found.engine.server == "rust"


def test_settings_override_what_a_server_says() -> None:
    line = "http://a,engine=vllm@0.31.0,block_size=64,events=tcp://b:1,block_algorithm=sha256"
    found = complete(parse_worker(line), said(VLLM, metrics=""))
    assert found == Description(EngineSpec("vllm@0.31.0", 64, "sha256"), "tcp://b:1")
    only_size = complete(parse_worker("http://a,block_size=64"), said(VLLM))
    assert only_size.engine == EngineSpec("vllm@0.32.0", 64, "sha256_cbor")


def test_a_server_of_another_engine_than_planned_says_nothing() -> None:
    line = "http://a,engine=vllm@0.31.0,events=tcp://b:1"
    found = complete(parse_worker(line), said({"/server_info": SGLANG}))
    assert found == Description(EngineSpec("vllm@0.31.0"), "tcp://b:1")


@pytest.mark.parametrize(
    ("answers", "member"),
    [
        ({}, "engine"),
        (VLLM | {"/version": {"version": "9.9.9"}}, "engine"),
        (VLLM | {"/version": {"version": "0.20.0"}}, "seed"),
    ],
)
def test_an_engine_whose_blocks_have_no_names_is_told_why(
    answers: dict[str, Any], member: str
) -> None:
    found = complete(parse_worker("http://a"), said(answers))
    assert not found.engine.name
    assert member in found.lacking["engine"] + "engine" * (member == "engine")


MODELS = [
    {"id": "qwen", "object": "model", "root": "/models/qwen", "parent": None, "permission": []},
    {"id": "adapter", "object": "model", "root": "/adapters/1", "parent": "qwen"},
]


@pytest.mark.parametrize(
    ("status", "body", "names"),
    [
        (200, json.dumps({"object": "list", "data": MODELS}).encode(), {"qwen", "adapter"}),
        (200, b'{"data": []}', set()),
        (404, json.dumps({"data": MODELS}).encode(), set()),
        (401, b'{"error": "Unauthorized"}', set()),
        (200, b"<html>", set()),
        (200, b"", set()),
        (200, b'{"data": [{"name": "qwen"}]}', set()),
        (200, b'{"data": [{"id": "\xff"}]}', set()),
        (200, b'{"data": [{"id": "\\ud800"}]}', set()),
        (200, b'{"data": ' + b"[" * 200_000, set()),
        (200, json.dumps({"data": [{"id": "x" * (1 << 20)}]}).encode(), set()),
    ],
)
def test_a_list_of_models_has_names(status: int, body: bytes, names: set[str]) -> None:
    assert read_model_list(status, body)[0].keys() == names


def test_an_adapter_has_a_base_and_a_path() -> None:
    cards = [*MODELS, {"id": "odd", "root": 5, "parent": ["x"]}, {"id": "own", "root": "own"}]
    listed, model_id = read_model_list(200, json.dumps({"data": cards}).encode())
    assert model_id == MODELS[0]["root"]
    assert listed == {
        "qwen": None,
        "adapter": Adapter("qwen", "/adapters/1"),
        "odd": None,
        "own": None,
    }
