"""The wheel as a user gets it: built from what git tracks, installed by each line of the docs."""

import os
import re
import shutil
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
    "service": "mmhash_service.http.app",
    "torch": "torch",
}
PROGRAM = """
import sys, numpy, mmhash
assert "torch" not in sys.modules
print(mmhash.key(numpy.arange(12, dtype=numpy.uint8).reshape(3, 4)))
"""


def install_lines() -> list[tuple[str, str]]:
    """Return the distribution and the extras of each distinct line."""
    return sorted({match.groups("") for page in PAGES for match in LINE.finditer(page.read_text())})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of all tracked files."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    copy_tracked_files(source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target)]
    subprocess.run([*build, str(source)], check=True, capture_output=True)
    (built,) = target.glob("mmhash_keys-*.whl")
    return built


@pytest.mark.parametrize(("distribution", "extras"), install_lines())
def test_the_line_installs_what_it_says(
    wheel: Path, tmp_path: Path, distribution: str, extras: str
) -> None:
    assert distribution == "mmhash-keys"
    requirement = f"{distribution}[{extras}]" if extras else distribution
    links = ("--find-links", str(wheel.parent), "--only-binary", distribution)
    binaries = try_wheel.install(requirement, tmp_path / "venv", links)
    for extra in extras.split(","):
        module = IMPORTS.get(extra, "mmhash")
        subprocess.run([binaries / "python", "-c", f"import {module}"], check=True, cwd=tmp_path)


def test_the_wheel_is_complete_and_runs(wheel: Path) -> None:
    try_wheel.main(wheel)


def test_the_core_installs_alone_and_works(wheel: Path, tmp_path: Path) -> None:
    binaries = try_wheel.install(str(wheel), tmp_path / "venv")
    python = str(binaries / "python")
    names = subprocess.check_output([python, "-m", "pip", "list", "--format", "freeze"], text=True)
    installed = {line.split("=")[0].lower() for line in names.split()}
    expected = {"blake3", "mmhash-keys", "numpy", "xxhash", "typing_extensions"}
    assert installed - {"pip", "setuptools"} <= expected
    alone = subprocess.check_output([python, "-c", PROGRAM], text=True, cwd=tmp_path)
    assert alone == subprocess.check_output([sys.executable, "-c", PROGRAM], text=True)
    command = subprocess.run(
        [binaries / "mmhash", "env"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert command.returncode == 1
    assert "pip install 'mmhash-keys[cli]'" in command.stderr


@pytest.mark.parametrize("installation", ["wheel", "editable"])
def test_a_users_program_has_types(wheel: Path, tmp_path: Path, installation: str) -> None:
    requirement, options = (str(wheel), ()) if installation == "wheel" else (str(ROOT), ("-e",))
    binaries = try_wheel.install(requirement, tmp_path / "venv", options)
    shutil.copy(ROOT / "tests" / "packaging" / "user_program.py", tmp_path)
    python = str(binaries / "python")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, "user_program.py"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "Success: no issues found in 1 source file\n")
