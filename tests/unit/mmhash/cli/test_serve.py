"""`mmhash serve` and `mmhash gateway`: options, settings, and what is wrong in one line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mmhash
import mmhash_service.server.server
from mmhash.cli.app import app
from mmhash_service.settings import Settings


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that each server was started with; none listens."""
    settings: list[Settings] = []
    monkeypatch.setattr(
        mmhash_service.server.server, "serve", lambda given, _create: settings.append(given)
    )
    return settings


def test_options_go_before_the_environment(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMHASH_HOST", "127.0.0.3")
    monkeypatch.setenv("MMHASH_PORT", "1234")
    for arguments in ([], ["--host", "::1"], ["--port", "0"]):
        assert CliRunner().invoke(app, ["serve", *arguments]).exit_code == 0
    assert [(settings.host, settings.port) for settings in served] == [
        ("127.0.0.3", 1234),
        ("::1", 1234),
        ("127.0.0.3", 0),
    ]


def test_the_last_value_of_a_setting_counts(served: list[Settings]) -> None:
    """As with --port, so that a script can append a caller's options to its own."""
    values = ('url_hosts=["a"]', "grace_s=1", 'url_hosts=["b"]')
    options = [word for value in values for word in ("--set", value)]
    assert CliRunner().invoke(app, ["serve", "--port", "1", "--port", "2", *options]).exit_code == 0
    (settings,) = served
    assert (settings.port, settings.url_hosts, settings.grace_s) == (2, ("b",), 1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--worker", "http://name:1"], "worker http://name:1: Envoy knows workers by their addr"),
        (
            ["--worker", "http://[::1]:1", "--set", "uds=/tmp/socket"],
            "uds: Envoy reaches the picker",
        ),
        ([], "no workers"),
    ],
)
def test_a_picker_that_envoy_could_not_use_does_not_start(options: list[str], problem: str) -> None:
    done = CliRunner().invoke(app, ["picker", *options])
    assert problem in str(done.exception)


def test_a_missing_package_or_a_wrong_setting_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_PORT", "secret")
    code = "import sys; sys.argv[1:] = ['serve']\n{}\nfrom mmhash.cli import main; main()"
    missing, wrong = (
        subprocess.run([sys.executable, "-c", code.format(line)], capture_output=True, check=False)
        for line in ("sys.modules['fastapi'] = None", "")
    )
    assert missing.returncode == wrong.returncode == 1
    assert missing.stderr.decode() == (
        "mmhash: fastapi is not installed: pip install 'mmhash-keys[service]'\n"
    )
    assert wrong.stderr.decode().startswith("mmhash: settings: port: ")
    assert wrong.stderr.count(b"\n") == 1
    assert b"secret" not in wrong.stderr


def test_check_does_not_serve(served: list[Settings]) -> None:
    done = CliRunner().invoke(app, ["serve", "--check"])
    assert (done.exit_code, served) == (0, [])
    assert done.stdout == "settings: ok; models: none; memo: memory\n"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("memo_url=redis://:hunter2@127.0.0.1:1", "memo_url: the redis store cannot be used"),
        ("memo_url=memcached://:hunter2@a", "settings: memo_url: write redis://HOST"),
        ("models={empty}", "models: tiny cannot be planned"),
        ("url_hosts=example.org", "url_hosts: not JSON"),
        ("log_level=debug", "unknown name log_level: docs/settings.md"),
    ],
)
def test_check_names_what_cannot_be_used(
    served: list[Settings], tmp_path: Path, setting: str, reason: str
) -> None:
    setting = setting.replace("{empty}", f'{{"tiny": "{tmp_path}"}}')
    done = CliRunner().invoke(app, ["serve", "--check", "--set", setting])
    assert done.exit_code == 1
    assert re.search(reason, str(done.exception))
    assert "hunter2" not in str(done.exception)
    assert served == []


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("POLICY", "best", "settings: policy: "),
        ("WORKER_LIST", "http://a:1", "settings: worker_list: not JSON: "),
        ("WORKER_LIST", '["http://a:1,engine=vllm@0.99"]', "settings: worker_list: worker 1: "),
    ],
)
def test_the_gateway_s_variables_are_read_too(
    served: list[Settings],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    reason: str,
) -> None:
    """`/route` of the service has them, so the server would fail later."""
    monkeypatch.setenv(f"MMHASH_GATEWAY_{variable}", value)
    for check in ([], ["--check"]):
        done = CliRunner().invoke(app, ["serve", *check])
        assert str(done.exception).startswith(reason)
    assert served == []


@pytest.mark.parametrize("line", ["port = true", "max_held_bytes = true", "timeout_s = true"])
def test_true_is_no_number_in_a_file(
    served: list[Settings], tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A boolean once meant port 1."""
    monkeypatch.setenv("MMHASH_CONFIG", "")  # the command sets it: restored at the end
    (tmp_path / "file.toml").write_text(line)
    done = CliRunner().invoke(app, ["serve", "--check", "--config", str(tmp_path / "file.toml")])
    assert "must be a number, not true or false" in str(done.exception)


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
            "models.a.path: Path does not point to a directory",
        ),
        (
            ["--worker", "http://a:1", "--worker-dns", "http://b:1"],
            "^settings: set only one of",
        ),
        (["--worker", "http://a:1", "--set", "memo_url=redis://127.0.0.1:1"], "redis store cannot"),
    ],
)
def test_the_check_of_a_gateway_names_what_cannot_be_used(
    arguments: list[str], reason: str
) -> None:
    done = CliRunner().invoke(app, ["gateway", "--check", *arguments])
    assert done.exit_code == 1
    assert re.search(reason, str(done.exception))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('polcy = "round-robin"', "unknown name gateway.polcy: did you mean gateway.policy?"),
        ("worker_timeout_s = -1", "worker_timeout_s"),
    ],
)
def test_a_file_has_the_settings_of_the_gateway_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: str
) -> None:
    file = tmp_path / "settings.toml"
    monkeypatch.setenv("MMHASH_CONFIG", str(file))  # the option sets it, and this restores it
    file.write_text(f"port = 1\n[gateway]\n{line}\n")
    arguments = ["gateway", "--check", "--worker", "http://a:1", "--config", str(file)]
    assert words in str(CliRunner().invoke(app, arguments).exception)


def test_a_file_that_is_no_toml_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    monkeypatch.setenv("MMHASH_CONFIG", str(file))
    for content in (b"port", b"\xff"):
        file.write_bytes(content)
        done = CliRunner().invoke(app, ["serve", "--check", "--config", str(file)])
        assert isinstance(done.exception, mmhash.InputError)
        assert str(done.exception).startswith(f"settings: {file}: ")


@pytest.mark.parametrize("name", ["", "none.toml"])
def test_a_missing_settings_file_is_named(tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(app, ["serve", "--check", "--config", str(tmp_path / name)])
    assert str(done.exception) == f"--config {tmp_path / name}: not a file"
