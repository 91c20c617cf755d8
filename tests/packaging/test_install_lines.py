"""Every install line of the README and the docs, against the built wheel."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging import try_wheel
from tests.support.tracked_files import copy_tracked_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINE = re.compile(r"pip install '?(mmhash[\w-]*)(?:\[([\w,]+)\])?'?")

# An import that needs the extra.
IMPORTS = {
    "": "mmhash",
    "bulk": "pyarrow",
    "client": "mmhash.client",
    "cuda": "mmhash.cuda",
    "ray": "mmhash.ray",
    "service": "mmhash_service.app",
    "torch": "torch",
}


def install_lines() -> list[tuple[str, str]]:
    """Return the distribution and the extras of each distinct line."""
    return sorted({match.groups("") for page in PAGES for match in LINE.finditer(page.read_text())})


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    copy_tracked_files(source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(source)], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(("distribution", "extras"), install_lines())
def test_the_line_installs_what_it_says(
    wheels: Path, tmp_path: Path, distribution: str, extras: str
) -> None:
    assert distribution == "mmhash-keys"
    requirement = f"{distribution}[{extras}]" if extras else distribution
    links = ("--find-links", str(wheels), "--only-binary", distribution)
    binaries = try_wheel.install(requirement, tmp_path / "venv", links)
    for extra in extras.split(","):
        module = IMPORTS.get(extra, "mmhash")
        subprocess.run([binaries / "python", "-c", f"import {module}"], check=True, cwd=tmp_path)


def test_the_wheel_is_complete_and_runs(wheels: Path) -> None:
    (wheel,) = wheels.glob("mmhash_keys-*.whl")
    try_wheel.main(wheel)
