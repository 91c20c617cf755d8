"""`mmhash gateway --check`: the settings and the workers, without listening."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mmhash
from mmhash.cli.app import app


def test_check_counts_the_workers(tmp_path: Path) -> None:
    workers = tmp_path / "workers"
    workers.write_text("http://a:1\n# the other\nhttp://b:1,engine=vllm@0.32.0\n")
    arguments = ["gateway", "--check", "--json", "--worker-file", str(workers)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    facts = {"settings": "ok", "models": [], "memo": "memory", "workers": 2}
    assert json.loads(done.stdout) == facts


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "no workers"),
        (["--worker", "a:1"], "a worker's URL|begins with its URL"),
        (["--worker", "http://a:1,engine=x"], "no engine 'x'"),
        (["--worker", "http://a:1,engine=vllm@0.99.0"], "vllm 0.99.0 is not known"),
        (["--worker-dns", "http://a:1,engine=vllm@0.99.0"], "vllm 0.99.0 is not known"),
        (
            ["--worker", "http://a:1", "--set", 'models={"a": "/nowhere"}'],
            "the directory of a does not exist",
        ),
        (
            ["--worker", "http://a:1", "--worker-dns", "http://b:1"],
            "^settings: workers come from one of",
        ),
        (["--worker", "http://a:1", "--set", "memo_url=redis://127.0.0.1:1"], "redis store cannot"),
    ],
)
def test_check_names_what_cannot_be_used(arguments: list[str], reason: str) -> None:
    done = CliRunner().invoke(app, ["gateway", "--check", *arguments])
    assert done.exit_code == 1
    assert re.search(reason, str(done.exception))


def test_a_file_of_workers_is_read(tmp_path: Path) -> None:
    workers = tmp_path / "workers"
    workers.write_text("nonsense\n")
    done = CliRunner().invoke(app, ["gateway", "--check", "--worker-file", str(workers)])
    assert done.exit_code == 1
    assert "URL" in str(done.exception)


def test_a_file_with_an_unknown_release(tmp_path: Path) -> None:
    workers = tmp_path / "workers"
    workers.write_text("http://a:1,engine=vllm@0.99.0\n")
    for check in ([], ["--check"]):
        arguments = ["gateway", *check, "--worker-file", str(workers)]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 1
        assert "vllm 0.99.0 is not known" in str(done.exception)
    done = CliRunner().invoke(app, [*arguments, "--set", "engine_fallback=nearest-older"])
    assert done.exit_code == 0, done.output


def test_it_may_listen_on_a_unix_socket(tmp_path: Path) -> None:
    arguments = ["gateway", "--check", "--worker", "http://a:1", "--workers", "2", "--uds"]
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "s")])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "none" / "s")])
    assert "uds: the directory of the Unix socket does not exist" in str(done.exception)


def test_a_file_has_only_settings_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    monkeypatch.setenv("MMHASH_CONFIG", str(file))  # the option sets it, and this restores it
    file.write_text('prot = 1\npolicy = "round-robin"\n[gateway]\npolicy = "round-robin"\n')
    arguments = ["gateway", "--check", "--worker", "http://a:1", "--config", str(file)]
    done = CliRunner().invoke(app, arguments)
    assert (
        "unknown name prot: did you mean port?; unknown name policy: docs/settings.md lists"
        in str(done.exception)
    )
    assert "unknown name gateway: docs/settings.md lists" in str(done.exception)


def test_a_file_that_is_no_toml_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    monkeypatch.setenv("MMHASH_CONFIG", str(file))
    for content in (b"port", b"\xff"):
        file.write_bytes(content)
        done = CliRunner().invoke(app, ["serve", "--check", "--config", str(file)])
        assert isinstance(done.exception, mmhash.InputError)
        assert str(done.exception).startswith(f"settings: {file}: ")


def test_a_wrong_worker_is_named_by_its_place() -> None:
    workers = ("http://a:1", "http://b:1,event=tcp://b:2")
    options = [word for worker in workers for word in ("--worker", worker)]
    done = CliRunner().invoke(app, ["gateway", "--check", *options])
    assert "settings: worker_list: worker 2: a worker is URL,events=…" in str(done.exception)


def test_the_form_of_the_workers_is_shown() -> None:
    done = CliRunner().invoke(app, ["gateway", "--set", "gateway.worker_list=http://a:1"])
    assert 'worker_list: not JSON: lists and tables are written ["a", "b"]' in str(done.exception)


@pytest.mark.parametrize(
    ("name", "hint"), [("polisy", "did you mean gateway.policy?"), ("x", "docs/gateway.md lists")]
)
def test_an_unknown_setting_of_the_gateway_has_its_prefix(name: str, hint: str) -> None:
    arguments = ["gateway", "--check", "--worker", "http://a:1", "--set", f"gateway.{name}=1"]
    done = CliRunner().invoke(app, arguments)
    assert f"unknown name gateway.{name}: {hint}" in str(done.exception)


def test_of_several_values_of_a_setting_the_last_counts(tmp_path: Path) -> None:
    workers = tmp_path / "workers"
    workers.write_text("http://a:1\n")
    values = ("gateway.worker_file=/nowhere", f"gateway.worker_file={workers}", "port=x", "port=1")
    options = [word for value in values for word in ("--set", value)]
    done = CliRunner().invoke(app, ["gateway", "--check", *options])
    assert done.exit_code == 0, done.exception
    assert done.stdout.endswith("workers: 1\n")


@pytest.mark.parametrize("name", ["", "none.toml"])
def test_the_file_is_named_if_it_is_none(tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(app, ["serve", "--check", "--config", str(tmp_path / name)])
    assert str(done.exception) == f"--config {tmp_path / name}: not a file"


def test_json_is_for_the_check() -> None:
    done = CliRunner().invoke(app, ["gateway", "--json", "--worker", "http://a:1"])
    assert done.exit_code == 2
