import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mmhash.cli.app import app
from mmhash.prompts import Model
from tests.live import models

RUN = CliRunner()
CHAT = {"messages": [{"role": "user", "content": "What is a multimodal cache key?"}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    models.write("qwen2_vl", folder)
    (tmp_path / "request.json").write_text(json.dumps(CHAT))
    return folder


def test_json_is_the_librarys_plan(folder: Path, tmp_path: Path) -> None:
    arguments = [str(folder), str(tmp_path / "request.json"), "--engine", "vllm@0.32.0"]
    done = RUN.invoke(app, ["plan", *arguments, "--json"], catch_exceptions=False)
    plan = Model.load(folder).plan(CHAT, "vllm@0.32.0")
    shown = json.loads(done.stdout)
    assert shown["token_ids"] == plan.token_ids
    assert shown["blocks"] == plan.blocks != []
    shown = RUN.invoke(app, ["plan", *arguments], catch_exceptions=False).stdout
    assert shown.startswith(f"{len(plan.token_ids)} tokens, 0 items, {len(plan.blocks)} blocks\n")
    assert all(block in shown for block in plan.blocks)


def test_block_size(folder: Path, tmp_path: Path) -> None:
    arguments = ["plan", str(folder), str(tmp_path / "request.json"), "--engine", "vllm", "--json"]
    done = RUN.invoke(app, [*arguments, "--block-size", "8"], catch_exceptions=False)
    shown = json.loads(done.stdout)
    assert len(shown["blocks"]) == len(shown["token_ids"]) // 8


def test_the_algorithm_and_the_seed_of_the_server(folder: Path, tmp_path: Path) -> None:
    arguments = ["plan", str(folder), str(tmp_path / "request.json"), "--engine", "vllm@0.28.0"]
    refused = RUN.invoke(app, arguments)
    assert "pass it here as seed" in str(refused.exception)
    options = ["--seed", "0", "--block-algorithm", "sha256_cbor", "--json"]
    done = RUN.invoke(app, [*arguments, *options], catch_exceptions=False)
    plan = Model.load(folder).plan(CHAT, "vllm@0.28.0", seed="0", block_algorithm="sha256_cbor")
    assert json.loads(done.stdout)["blocks"] == plan.blocks != []


def test_an_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text("{}")
    arguments = ["plan", str(tmp_path / "none"), str(tmp_path / "request.json"), "--engine", "vllm"]
    done = RUN.invoke(app, arguments)
    assert str(done.exception) == (
        f"{tmp_path}/none is not a directory: download the model, and pass its directory"
    )
