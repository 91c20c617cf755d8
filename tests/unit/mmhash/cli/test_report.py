"""`--json`: one object per line, of each command that runs here without a server."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

import mmhash
from mmhash.cli.app import app


def lines(*arguments: object, status: int = 0) -> list[Any]:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == status, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.new("RGB", (8, 8), "navy").save(path)
    return path


def test_key_takes_a_list_of_engines(photo: Path) -> None:
    key = mmhash.key_file(photo)
    engines = {name: mmhash.engines.request_fields(key, name) for name in ("vllm", "sglang")}
    (line,) = lines("key", photo, "--engine", "vllm,sglang")
    assert line == {"name": str(photo), "key": key.hex(), "engines": engines}
    assert lines("key", photo) == [{"name": str(photo), "key": key.hex()}]


def test_explain(photo: Path) -> None:
    (line,) = lines("explain", photo, "--engine", "vllm")
    steps = {step["step"]: step["value"] for step in line["steps"]}
    assert steps["key by of=pixels"] == mmhash.key_file(photo, of="pixels").hex()


def test_env() -> None:
    (line,) = lines("env")
    assert line["mmhash"] == mmhash.__version__


def test_health() -> None:
    (line,) = lines("health", "127.0.0.1:1", status=1)
    assert line == {"url": "127.0.0.1:1", "status": None, "reason": "Connection refused"}


def test_serve_check() -> None:
    (line,) = lines("serve", "--check")
    assert line == {"settings": "ok", "models": [], "memo": "memory"}
