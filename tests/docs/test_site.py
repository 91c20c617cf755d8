"""The documentation site builds without a warning and without a network, and needs none."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

# All their names are on the page of the API.
API = (
    "mmhash",
    "mmhash.client",
    "mmhash.engines",
    "mmhash.kvindex",
    "mmhash.media",
    "mmhash.prompts",
    "mmhash.transport",
)

# Nothing listens there: a build that asks the network fails.
OFFLINE = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | OFFLINE | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = re.compile(
        r'<(?:script|img|link|iframe)\b[^>]*?(?:src|href)="?((?:https?:)?//[^">\s]+)'
    )
    for page in site.rglob("*.html"):
        assert loaded.findall(page.read_text()) == [], page.name


def test_the_site_has_no_code_that_builds_it(site: Path) -> None:
    assert [path.name for path in site.rglob("*site_hooks*")] == []


def test_the_reference_has_the_public_names_and_all_commands(site: Path) -> None:
    api = (site / "api.html").read_text()
    for name in (
        "Digest",
        "hashing.digest",
        "key",
        "split.split",
        "client.Client",
        "kvindex.Index",
    ):
        assert f'id="mmhash.{name}"' in api, name
    for name in API:
        module = importlib.import_module(name)
        for public in module.__all__:
            assert re.search(rf'id="mmhash(\.\w+)*\.{public}"', api), f"{name}.{public}"
    shown = (site / "cli.html").read_text()
    for command in ("key", "bulk", "explain", "plan", "serve", "gateway", "health"):
        assert f"<code>mmhash {command}</code>" in shown, command
