"""The guard's settings: where they come from, and their bounds."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.responses import Response

from mmhash.errors import InputValueError
from mmhash_service.guard import Guard
from mmhash_service.guard.settings import GuardSettings

SECRET = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "vlm"},
        {"engine": "vllm@0.1"},
        {"secrets": []},
        {"secrets": ["ab" * 31]},
        {"secrets": ["ab" * 33]},
        {"secrets": [" " + "ab" * 32]},
        {"tenant": ""},
        {"max_body_bytes": 0},
        {"nothing": 1},
    ],
)
def test_a_value_that_is_not_allowed_stops_the_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        Guard(Response(), **{"engine": "vllm", "secrets": [SECRET], **wrong})
    assert "ab" * 31 not in str(refused.value)


def test_a_guard_needs_secrets() -> None:
    with pytest.raises(ValidationError, match="secrets"):
        Guard(Response(), engine="vllm")


def test_a_misspelt_variable_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_GUARD_TENENT", "acme")
    with pytest.raises(
        ValueError, match=r"MMHASH_GUARD_TENENT: did you mean MMHASH_GUARD_TENANT\?"
    ):
        Guard(Response(), engine="vllm", secrets=[SECRET])


@pytest.mark.parametrize("value", ["1", "true", "YES", "y"])
def test_sglang_s_server_in_rust_takes_no_guard(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_RUST_SERVER", value)
    with pytest.raises(InputValueError, match="SGLANG_RUST_SERVER"):
        Guard(Response(), engine="sglang@0.5.23", secrets=[SECRET])
    Guard(Response(), engine="vllm", secrets=[SECRET])
    monkeypatch.setenv("SGLANG_RUST_SERVER", "false")
    Guard(Response(), engine="sglang@0.5.23", secrets=[SECRET])


def test_the_secrets_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets").write_text(f"{SECRET}\n{SECRET[::-1]}\n")
    monkeypatch.setenv("MMHASH_GUARD_SECRETS_FILE", str(tmp_path / "secrets"))
    arguments: dict[str, Any] = {"engine": "vllm"}
    secrets = GuardSettings(**arguments).secrets
    assert [secret.get_secret_value() for secret in secrets] == [SECRET, SECRET[::-1]]


def test_no_secret_is_shown() -> None:
    settings = GuardSettings(engine="vllm", secrets=[SECRET])
    assert SECRET not in f"{settings!r} {settings.model_dump_json()}"
