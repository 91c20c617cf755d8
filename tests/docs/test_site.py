"""The documentation site builds without a warning and without a network, and needs none."""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mmhash

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
REPOSITORY = "https://example.org/mmhash"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | OFFLINE | {"NO_MKDOCS_2_WARNING": "1", "REPOSITORY_URL": REPOSITORY},
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


def test_every_page_is_there_with_the_files_that_it_links_to(site: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages | {"cli"} <= {path.stem for path in site.glob("*.html")}
    for page in set(site.glob("*.html")) - {site / "404.html"}:
        for target in re.findall(r'href="?(?!https?:|mailto:)([^"#>\s]+)', page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_each_page_shows_the_version_and_where_to_edit_it(site: Path) -> None:
    page = (site / "gateway.html").read_text()
    assert f"mmhash {mmhash.__version__}" in page
    assert f'href="{REPOSITORY}"' in page
    assert f'href="{REPOSITORY}/edit/main/docs/gateway.md"' in page
    assert "/edit/" not in (site / "api-keys.html").read_text()


def test_examples_of_docstrings_are_code(site: Path) -> None:
    for page in site.glob("api-*.html"):
        assert "<blockquote>" not in page.read_text(), page.name
    assert 'class="gp">&gt;&gt;&gt;' in (site / "api-keys.html").read_text()


def test_the_search_shows_guides_before_the_api(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    api = [one for one in entries if one["location"].startswith("api-")]
    assert api
    assert all(one["boost"] < 1 for one in api)


def test_the_installation_has_each_extra_of_users(site: Path) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"].keys()
    page = (site / "install.html").read_text()
    for name in extras - {"dev", "docs"}:
        assert f"<td><code>{name}</code></td>" in page, name
    assert "Two commands" in page


def test_the_site_has_no_code_that_builds_it(site: Path) -> None:
    assert [path.name for path in site.rglob("*site_hooks*")] == []


def test_the_reference_has_the_public_names_and_all_commands(site: Path) -> None:
    api = "".join(page.read_text() for page in site.glob("api-*.html"))
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
