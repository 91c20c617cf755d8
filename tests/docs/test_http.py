"""The examples on the pages of the HTTP calls have the answers that are shown."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live import models
from tests.support.decoders import wait_for_ready
from tests.support.service import serving

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("http", "annotate", "urls", "problems")
PAGE = "".join((DOCS / f"{name}.md").read_text() for name in PAGES)
EXAMPLES = re.findall(r"```console\n\$ (.*?)\n```\n\n```json\n(.*?)\n```", PAGE, re.DOTALL)
FILES, IN_PLACE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("http")
    subprocess.run([sys.executable, "-c", FILES], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the settings of the page."""
    model = tmp_path_factory.mktemp("models") / "tiny"
    models.write("qwen2_vl", model)
    settings = {
        "tenants": {"acme": "11" * 32},
        "models": {"tiny": {"path": str(model), "model_id": "tiny"}},
    }
    with serving(settings=settings) as service, service.new_client() as client:
        wait_for_ready(client)
        yield service.url


def without_times(answer: Any) -> Any:
    """Return the fields that are the same in every run and on every host."""
    return {name: value for name, value in answer.items() if name not in {"elapsed_ms", "python"}}


@pytest.mark.parametrize(("command", "shown"), EXAMPLES)
def test_each_request_has_the_answer_that_is_shown(
    url: str, folder: Path, command: str, shown: str
) -> None:
    line = command.replace("http://127.0.0.1:8780", url)
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=True
    )
    assert without_times(json.loads(done.stdout)) == without_times(json.loads(shown))


@pytest.mark.slow
def test_the_program_that_hashes_in_place(folder: Path) -> None:
    path = str(folder / "socket")
    with serving("--uds", path):
        program = IN_PLACE.replace("/run/mmhash.sock", path)
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)


def test_there_is_an_example_of_each_call() -> None:
    from mmhash_service.http.app import create_app

    shown = {re.sub(r".*8780|[?'].*", "", command, flags=re.DOTALL) for command, _ in EXAMPLES}
    # The probes are alike, metrics are no JSON, and /info changes with each setting and release.
    without = {"/live", "/health", "/metrics", "/info"}
    # So are prompts that are rendered.
    without |= {f"/v1/{form}/render" for form in ("completions", "messages", "responses")}
    without |= {"/tokenize"}
    assert create_app().openapi()["paths"].keys() - shown == without
