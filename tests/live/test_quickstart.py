"""Runs the quickstart's commands in the order of its page, with a real vLLM and a real SGLang.

Only what depends on the reader's machine is replaced: the model, ports, and flags for a CPU.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docs.test_pages import MMHASH, blocks
from tests.live.engines import START_S, _sglang_command, _stop, variables_of
from tests.live.environments import Environment
from tests.support.ports import free_port

pytestmark = pytest.mark.slow

PAGE = blocks("quickstart-vllm.md")
(PROGRAM,) = (text for kind, text in PAGE if kind == "python")
# A quoted string in a command may have several lines. The page shows no output.
SHOWN = [
    command
    for kind, text in PAGE
    if kind == "console"
    for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
]
# The commands for vLLM come first.
SECTION = next(at for at, command in enumerate(SHOWN) if "sglang" in command)

VLLM_ON_CPU = "--load-format dummy --dtype float32 --max-model-len 2048 --enforce-eager"


class Reader:
    """The reader's machine: what replaces the page's model, ports and programs."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        environment.build_or_skip()
        self.folder, self._environment = folder, environment
        self.engine, self.gateway, events, replay = (free_port() for _ in range(4))
        self._replaced = {
            "8780": str(self.gateway), "8000": str(self.engine), "30000": str(self.engine),
            "5557": str(events), "5558": str(replay),
        }  # fmt: skip

    def here(self, command: str) -> str:
        """Return a command of the page, adapted to this machine."""
        model = self._environment.model("qwen2_vl")
        for shown, own in self._replaced.items():
            command = re.sub(rf"\b{shown}\b", own, command)
        command = re.sub(
            r'(?<=: ")MODEL(?="})|(?<=serve )MODEL|(?<=path )MODEL', str(model), command
        )
        command = re.sub(r"\bmmhash (?=gateway)", f"{MMHASH} ", command)
        own = f" --served-model-name MODEL --port {self.engine} --host 127.0.0.1 "
        command = command.rstrip()
        if "vllm serve" in command:
            command = command.replace("--block-size 16", "--block-size 32")  # the smallest on a CPU
            command = command.replace("vllm serve", f"{self._environment.command('vllm')} serve")
            return f"{command} {VLLM_ON_CPU} {own}"
        if "sglang.launch_server" in command:
            (
                python,
                *_,
            ) = _sglang_command(self._environment, model, 0, (0, 0))
            return f"{command.replace('python -m', f'{python} -m')} {self._flags(model)} {own}"
        return command

    def _flags(self, model: Path) -> str:
        """Return SGLang's flags for a CPU, except flags that the page already has."""
        words = _sglang_command(self._environment, model, 0, (0, 0))[5:]
        line = " ".join(words[: words.index("--host")])
        return line.replace("--page-size 16 ", "")

    @contextmanager
    def started(self, command: str, url: str, variables: dict[str, str]) -> Iterator[None]:
        """Run a server until the block ends."""
        log = self.folder / f"{time.monotonic_ns()}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec env {self.here(command)}"],
                cwd=self.folder, stdout=output, stderr=output, start_new_session=True,
                env=variables_of() | variables,
            )  # fmt: skip
        try:
            until = time.monotonic() + START_S
            while not _answers(url):
                in_time = time.monotonic() < until
                assert process.poll() is None, log.read_text()[-4000:]
                assert in_time, log.read_text()[-4000:]
                time.sleep(0.5)
            yield
        finally:
            _stop(process)

    def run(self, command: str) -> Any:
        """Run a command, and return the JSON that it prints."""
        done = subprocess.run(
            ["bash", "-c", self.here(command)],
            cwd=self.folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    def wait_for_events(self) -> None:
        """Wait until the gateway's events are connected, as they are once a reader has typed on."""
        until = time.monotonic() + 60
        url = f"http://127.0.0.1:{self.gateway}/workers"
        while not (worker := httpx.get(url, timeout=60).json()["workers"][0])["connected"]:
            assert time.monotonic() < until, worker
            time.sleep(0.2)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def cached_tokens(answer: Any) -> int:
    """Return how many tokens were reused, according to a response."""
    return ((answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens")) or 0


@pytest.mark.parametrize(
    ("spelling", "shown"), [("vllm@0.32.0", SHOWN[:SECTION]), ("sglang@0.5.23", SHOWN[SECTION:])]
)
def test_the_second_request_reuses_the_image(
    spelling: str, shown: list[str], plugin_site: Path, tmp_path: Path
) -> None:
    reader = Reader(Environment(*spelling.split("@")), tmp_path)
    engine, gateway, *requests = shown
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, check=True)
    # `pip install mmhash-keys` in the engine's environment.
    site = {"PYTHONPATH": str(plugin_site)}
    with (
        reader.started(engine, f"http://127.0.0.1:{reader.engine}/v1/models", site),
        reader.started(gateway, f"http://127.0.0.1:{reader.gateway}/ready", {}),
    ):
        reader.wait_for_events()
        chat = requests[0]
        assert cached_tokens(reader.run(chat)) == 0
        time.sleep(2)  # events arrive while the reader types
        assert cached_tokens(reader.run(chat)) >= 256  # the text before the image is shorter
        for command in requests[1:]:
            assert reader.run(command)["workers"][0]["matched_tokens"] >= 256
