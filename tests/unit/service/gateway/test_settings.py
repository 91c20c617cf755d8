"""The gateway's settings, the workers that they name, and the page on them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from mmhash_service.gateway.settings import (
    PREFIX,
    GatewaySettings,
    Recipe,
    WorkerSpec,
    parse_worker,
)
from mmhash_service.settings import Settings

PAGE = Path(__file__).parents[4] / "docs" / "gateway.md"


@pytest.mark.parametrize("name", GatewaySettings.model_fields)
def test_the_page_has_each_setting_as_it_is(name: str) -> None:
    field = GatewaySettings.model_fields[name]
    row = f"| `{name}` | `{PREFIX}{name.upper()}` | `{field.default}` | {field.description} |"
    assert row in PAGE.read_text().splitlines()


def test_the_page_has_no_other_setting() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if f"| `{PREFIX}" in line]
    assert len(rows) == len(GatewaySettings.model_fields)


def test_a_worker_has_all_its_parts() -> None:
    text = (
        "http://a:8000/,events=tcp://a:5557,replay=tcp://a:5558,engine=vllm@0.32.0,block_size=16,"
        "algorithm=sha256_cbor,seed=0,ranks=2"
    )
    recipe = Recipe("vllm@0.32.0", 16, "sha256_cbor", "0")
    assert parse_worker(text) == WorkerSpec(
        "http://a:8000", recipe, "tcp://a:5557", "tcp://a:5558", 2
    )
    assert parse_worker("https://a") == WorkerSpec("https://a")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:8000",
        "ftp://a",
        "http://",
        "http://a:99999",
        "http://a?b",
        "http://user:secret@a",
        "http://a,events",
        "http://a,event=tcp://a:1",
        "http://a,engine=vllm,engine=vllm",
        "http://a,engine=other",
        "http://a,events=tcp://a:1",
        "http://a,events=a:1,engine=vllm",
        "http://a,replay=tcp://a:1,engine=vllm",
        "http://a,block_size=16",
        "http://a,engine=vllm,block_size=0",
        "http://a,engine=vllm,ranks=1000",
        "http://a/v1",
        "http://a:8000/v1/",
        "http://a,engine=vllm@0.32.0,algorithm=md5",
        "http://a,engine=vllm@0.32.0,algorithm=xxhash",  # its root is random without a seed
        "http://a,engine=vllm@0.20.0,events=tcp://a:1",
        "http://a,engine=sglang@0.5.23,seed=0",
        "http://a,engine=lmcache,events=tcp://a:1",
        "http://a,engine=vllm," + "x" * 3000,
    ],
)
def test_a_worker_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_worker(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"worker_list": ("http://a", "http://a")},
        {"worker_list": ("nothing",)},
        {"worker_list": ("http://a",), "worker_dns": "http://b:1"},
        {"worker_file": "/nowhere"},
        {"policy": "best"},
        {"load_weight": -1},
        {"unknown": 1},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        GatewaySettings(**wrong)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}WORKER_LIST", '["http://a"]')
    assert GatewaySettings().has_workers
    Settings()  # knows the variable too


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}POLICIES", "x")
    with pytest.raises(ValueError, match="MMHASH_GATEWAY_POLICY"):
        GatewaySettings()
