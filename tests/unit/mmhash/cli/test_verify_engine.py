"""`mmhash verify-engine`: its exit code, and what it says without an engine."""

import socket

import pytest
from typer.testing import CliRunner

from mmhash.cli.app import app
from mmhash.errors import ServiceError
from mmhash.verify import run
from mmhash.verify.run import Report


@pytest.mark.parametrize(("named", "code"), [(8, 0), (7, 1)])
def test_exit_code_follows_the_report(
    monkeypatch: pytest.MonkeyPatch, named: int, code: int
) -> None:
    def verify(*_: object, **__: object) -> Report:
        return Report("vllm 0.32.0", 8, named, (), "sha256")

    monkeypatch.setattr("mmhash.verify.verify_engine", verify)
    done = CliRunner().invoke(app, ["verify-engine", "http://h", "--events", "tcp://h:1"])
    assert done.exit_code == code
    assert f"{named} of 8 blocks" in done.output


def test_no_engine_is_an_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ServiceError, match="no engine answers"):
            run.verify_engine(url, "tcp://127.0.0.1:9")
