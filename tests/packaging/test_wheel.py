"""The wheel as a user gets it: built from what git tracks, installed where nothing else is."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.tracked_files import copy_tracked_files

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CORE = ["--constraint", str(ROOT / "constraints.txt")]
PROGRAM = """
import sys, numpy, mmhash
assert "torch" not in sys.modules
print(mmhash.key(numpy.arange(12, dtype=numpy.uint8).reshape(3, 4)))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of all tracked files."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    copy_tracked_files(source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target)]
    subprocess.run([*build, str(source)], check=True, capture_output=True)
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_holds_every_module(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.check_output(["git", "ls-files", "mmhash", "service"], cwd=ROOT, text=True)
    assert {name.removeprefix("service/") for name in listed.split()} <= held


def test_the_core_installs_alone_and_works(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", *CORE, str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    names = subprocess.check_output([python, "-m", "pip", "list", "--format", "freeze"], text=True)
    installed = {line.split("=")[0].lower() for line in names.split()}
    assert installed <= {
        "blake3",
        "mmhash-keys",
        "numpy",
        "xxhash",
        "pip",
        "setuptools",
        "typing_extensions",
    }
    alone = subprocess.check_output([python, "-c", PROGRAM], text=True, cwd=tmp_path)
    beside_torch = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True)
    assert alone == beside_torch
    command = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "mmhash"), "env"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert command.returncode == 1
    assert "pip install 'mmhash-keys[cli]'" in command.stderr
