"""Programs and commands of the quickstarts and guides run in order, against real processes.

Addresses and names of the reader's machine are replaced. Two small engines stand behind the gateway
that a page starts; `make live` starts real ones with the flags that the pages show.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.gateway import QUICK, EngineProcess, engines
from tests.support.kv_publisher import Publisher
from tests.support.prompt_models import write_qwen2_vl
from tests.support.service import Service, serving

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^ *```(python|console)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
MMHASH = Path(sys.executable).with_name("mmhash")

# The gateway of a page, or its only service, and the service beside a gateway.
GATEWAY, SERVICE = "http://127.0.0.1:8780", "http://127.0.0.1:8781"

# Run by this file, as they are.
PAGES = (
    "README.md",
    "gateway.md",
    "operations.md",
    "prompts.md",
    "quickstart-library.md",
    "quickstart-sidecar.md",
    "quickstart-vllm.md",
    "routing.md",
)

# Run by others.
ELSEWHERE = {
    "annotate.md": "tests/docs/test_http.py",
    "bulk.md": "tests/docs/test_snippets.py",
    "client.md": "tests/docs/test_client.py",
    "cuda.md": "tests/docs/test_compile.py",
    "docker.md": "tests/packaging/test_image.py",  # by `make image`
    "engines.md": "tests/docs/test_snippets.py",
    "envoy.md": "tests/integration/picker",
    "guard.md": "tests/live/test_guard.py",
    "http.md": "tests/docs/test_http.py",
    "live.md": "tests/live",
    "media.md": "tests/docs/test_snippets.py",
    "problems.md": "tests/docs/test_http.py",
    "settings.md": "tests/unit/mmhash_service/test_settings.py",
    "transport.md": "tests/docs/test_snippets.py",
    "urls.md": "tests/docs/test_http.py",
}


def blocks(page: str) -> list[tuple[str, str]]:
    path = ROOT / page if page == "README.md" else DOCS / page
    return BLOCK.findall(path.read_text())


def commands(block: str) -> list[str]:
    """Return the commands of a console block, without the folder of `mmhash`."""
    return [
        command.strip().removeprefix(".venv/bin/")
        for command in re.findall(r"^ *\$ ((?:[^\n]*\\\n)*[^\n]*)", block, re.MULTILINE)
    ]


class Place(NamedTuple):
    """The machine of the reader."""

    folder: Path
    service: Service
    engine: EngineProcess
    publisher: Publisher

    def here(self, text: str, urls: dict[str, str]) -> str:
        """Replace the reader's addresses and names by those of this machine."""
        for name, value in {
            **urls,
            "--port 8780": "--port 0",
            "--port 8781": "--port 0",
            "mmhash serve": "mmhash serve --port 0",
            "mmhash gateway": "mmhash gateway --port 0",
            '{"MODEL": "MODEL"}': f'{{"tiny": "{self.folder / "tiny"}"}}',
            '{"NAME": "DIRECTORY"}': f'{{"tiny": "{self.folder / "tiny"}"}}',
            "/models/tiny": str(self.folder / "tiny"),
            "Qwen2-VL-2B-Instruct": str(self.folder / "tiny"),
        }.items():
            text = text.replace(name, value)
        text = re.sub(r"replay=tcp://[^,'\s]*", f"replay={self.publisher.replay}", text)
        text = re.sub(r"http://(127\.0\.0\.1:(8000|30000)|10\.0\.0\.1:8000)", self.engine.url, text)
        return re.sub(r"tcp://(127\.0\.0\.1|10\.0\.0\.1):5557", self.publisher.events, text)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("reader")
    model = write_qwen2_vl(folder / "tiny")
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "request.json").symlink_to(ROOT / "examples" / "chat.json")
    with ExitStack() as stack:
        (engine,) = stack.enter_context(engines(1))
        publisher = stack.enter_context(Publisher())
        worker = f"{engine.url},events={publisher.events},engine=vllm@0.32.0"
        # With workers the service has /route and /workers too.
        service = serving(
            settings={"models": {"tiny": str(model)}},
            env=os.environ | {"MMHASH_GATEWAY_WORKER_LIST": f'["{worker}"]'},
        )
        yield Place(folder, stack.enter_context(service), engine, publisher)


# The names that a program assumes.
BEFORE = {
    "prompts.md": (
        "import mmhash\nkey = mmhash.key(b'image')\n"
        "request = {'model': 'm', 'messages': [{'role': 'user', 'content': 'Hello'}]}\n"
    ),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_run_in_order(place: Place, page: str) -> None:
    urls = {GATEWAY: place.service.url}
    before = BEFORE.get(page, "")
    with ExitStack() as stack:
        for kind, block in blocks(page):
            if kind == "python":
                before = _run_program(place, before, place.here(block, urls), page)
                continue
            for command in commands(block):
                if started := _run_command(place, command, urls, stack):
                    urls[SERVICE if "--port 8781" in command else GATEWAY] = started


def _run_program(place: Place, before: str, program: str, page: str) -> str:
    """Run a program after those before it on its page, and return both."""
    text = f"{before}\n{program}" if page in BEFORE else program
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=place.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), f"{program}\n{done.stderr}"
    return text


def _run_command(place: Place, command: str, urls: dict[str, str], stack: ExitStack) -> str | None:
    """Run a command; return the address of the server that it starts."""
    name, second = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", command).split()[:2]
    if name in {"vllm", "python"}:
        _check_flags(command)
    elif name == "docker":
        assert f"$ {command}" in (DOCS / "docker.md").read_text()
    elif name == "make":
        assert f"\n{second}:" in (ROOT / "Makefile").read_text()
    elif (name, second) == ("mmhash", "verify-engine"):  # tests/live runs it
        known = subprocess.run(
            [MMHASH, second, "--help"], capture_output=True, text=True, check=True
        )
        assert all(flag in known.stdout for flag in re.findall(r"--[\w-]+", command))
    elif name == "mmhash" and second in {"gateway", "serve"}:
        return stack.enter_context(_started(place.here(command, urls))).url
    else:
        _run(place, place.here(command, urls), command)
    return None


def _check_flags(command: str) -> None:
    """Compare the flags of an engine with those that real engines are started with."""
    used = "".join(
        path.read_text()
        for folder in ("tests/live", "bench/fleet")
        for path in (ROOT / folder).glob("*.py")
    )
    for flag in re.findall(r"(?<!\w)--[a-z-]+", command):
        assert flag in used, f"{flag}: no live test starts an engine with it"


def _started(command: str) -> AbstractContextManager[Service]:
    words = ["bash", "-c", f'exec {MMHASH} {command.removeprefix("mmhash ")} "$@"', "bash"]
    quick = QUICK if command.split()[1] == "gateway" else {}
    return serving(settings=quick, program=words)


def _run(place: Place, command: str, shown: str) -> None:
    # A service whose decoders are starting answers 503.
    script = command.replace("curl -s", "curl --retry 9 --retry-delay 1 -fs").replace(
        "mmhash ", f"{MMHASH} ", 1 if command.startswith("mmhash ") else 0
    )
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        cwd=place.folder, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, f"{shown}\n{done.stdout}{done.stderr}"
    assert done.stdout.strip(), shown
    if "/v1/chat/completions" in shown or "/generate" in shown:
        assert '"worker"' in done.stdout  # the small engine's echo


def test_every_page_with_a_block_is_run() -> None:
    with_blocks = {path.name for path in DOCS.glob("*.md") if blocks(path.name)}
    assert with_blocks == (set(PAGES) - {"README.md"}) | (with_blocks & ELSEWHERE.keys())
    for test in ELSEWHERE.values():
        assert (ROOT / test).exists(), test
