"""The models that workers list, and the workers that may get a request for one."""

import json
from typing import Any

import pytest

from mmhash_service.gateway.served_models import (
    read_model_list,
    requested_model,
    workers_for,
)
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker import Adapter, Worker
from mmhash_service.gateway.worker_spec import parse_worker

VLLM = [
    {"id": "qwen", "object": "model", "root": "/models/qwen", "parent": None, "permission": []},
    {"id": "adapter", "object": "model", "root": "/adapters/1", "parent": "qwen"},
]


@pytest.mark.parametrize(
    ("status", "body", "names"),
    [
        (200, json.dumps({"object": "list", "data": VLLM}).encode(), {"qwen", "adapter"}),
        (200, b'{"data": []}', set()),
        (404, json.dumps({"data": VLLM}).encode(), set()),
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
    cards = [*VLLM, {"id": "odd", "root": 5, "parent": ["x"]}, {"id": "own", "root": "own"}]
    listed, model_id = read_model_list(200, json.dumps({"data": cards}).encode())
    assert model_id == VLLM[0]["root"]
    assert listed == {
        "qwen": None,
        "adapter": Adapter("qwen", "/adapters/1"),
        "odd": None,
        "own": None,
    }


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"messages": [{"model": "no"}], "model": "q\\u0077en"}', "qwen"),
        (b'{"model": null}', ""),
        (b'{"model": 1}', ""),
        (b"{}", ""),
        (b"[]", ""),
        (b"", ""),
        (b"--boundary", ""),
        (b'{"model": "\xff"}', ""),
        (b'{"x": ' + b"[" * 200_000, ""),
    ],
)
def test_a_request_names_a_model(body: bytes, model: str) -> None:
    assert requested_model(body) == model


def chosen(model: str, *workers: tuple[str, bool]) -> list[int]:
    """Return the numbers of the workers that may get a request; each has its models and health."""
    made = []
    for number, (models, is_healthy) in enumerate(workers):
        worker = Worker(parse_worker(f"http://{number}:1"), GatewaySettings())
        worker.models, worker.is_healthy = dict.fromkeys(models), is_healthy
        made.append(worker)
    return [made.index(worker) for worker in workers_for(model, made)]


UP, DOWN = True, False


@pytest.mark.parametrize(
    ("model", "workers", "expected"),
    [
        ("a", [("a", UP), ("x", UP)], [0]),
        ("a", [("a", UP), ("x", UP), ("", UP)], [0, 2]),
        ("a", [("a", DOWN), ("x", UP)], [0]),  # 503 rather than a model that is not asked for
        ("a", [("a", DOWN), ("x", UP), ("", DOWN)], [0, 2]),
        ("l", [("al", UP), ("a", UP)], [0]),
        ("l", [("al", DOWN), ("a", UP), ("x", UP)], [0, 1]),  # it may load the adapter
        ("", [("a", UP), ("x", UP), ("", UP)], [0, 1, 2]),
        ("other", [("a", UP), ("x", UP), ("", UP)], [0, 1, 2]),
    ],
)
def test_a_request_goes_to_workers_that_have_its_model(
    model: str, workers: list[Any], expected: list[int]
) -> None:
    assert chosen(model, *workers) == expected
