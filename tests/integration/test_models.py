"""The models of a running service are read at the start, and again on SIGHUP."""

import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.live import models
from tests.support.service import (
    COMMAND,
    TIMEOUT_S,
    Service,
    count,
    handles_signals,
    serving,
)
from tests.support.waiting import wait_until

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    models.write("qwen2_vl", folder)
    return folder


def plan(client: httpx.Client) -> list[int]:
    answer = client.post("/plan", params={"model": "tiny", "engine": "vllm"}, json=CHAT)
    assert answer.status_code == 200, answer.text
    ids: list[int] = answer.json()["token_ids"]
    return ids


def plan_by(service: Service, process: int) -> list[int]:
    """Return the plan of one process while all others are stopped."""
    others = [pid for pid in service.server_pids if pid != process]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        with service.new_client() as client:
            return plan(client)
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def change_template(folder: Path) -> None:
    """Replace the chat template with a template without roles, as an operator would."""
    path = folder / "tokenizer_config.json"
    text = path.read_text().replace("<|im_start|>{{ message", "{{ message")
    assert text != path.read_text()
    replacement = folder / "new"
    replacement.write_text(text)
    replacement.rename(path)


def replace_process(service: Service) -> int:
    """Kill one of two processes. Return its replacement once it runs."""
    old, other = service.server_pids
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: old not in service.server_pids and len(service.server_pids) == 2)
    (new,) = {*service.server_pids} - {other}
    wait_until(lambda: handles_signals(new))
    return new


def test_a_new_process_has_the_models_of_the_others(folder: Path) -> None:
    """All processes share the tokenizers that the supervisor has read."""
    with serving("--processes", "2", settings={"models": {"tiny": str(folder)}}) as service:
        with service.new_client() as client:
            before = plan(client)
            assert count(client, "mmhash_model_loads_total", result="loaded") == 2
        change_template(folder)  # without a SIGHUP
        assert plan_by(service, replace_process(service)) == before
        service.process.send_signal(signal.SIGHUP)
        service.log.wait_for("reloaded the model tiny", 2)
        assert len(plan_by(service, replace_process(service))) < len(before)


def test_a_new_process_runs_without_a_model_that_can_no_longer_be_loaded(folder: Path) -> None:
    """It would exit at every start, while the other processes still have the old model."""
    other = folder.parent / "other"
    models.write("qwen2_vl", other)
    sources = {"tiny": str(folder), "other": str(other)}
    with serving("--processes", "2", settings={"models": sources}) as service:
        (other / "config.json").write_text("{}")
        service.process.send_signal(signal.SIGHUP)
        service.log.wait_for("models: other cannot be planned", 2)
        assert plan_by(service, replace_process(service))


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_bad_directory_fails_the_start(folder: Path, processes: str) -> None:
    (folder / "config.json").write_text('{"model_type": "unheard-of"}')
    done = subprocess.run(
        [*COMMAND, "--processes", processes, "--set", f'models={{"tiny": "{folder}"}}'],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("mmhash: models: tiny cannot be planned: ")
    assert "unheard-of" in line
