"""The wheel as a user gets it: built from what git tracks, installed by each line of the docs.

`make release` inspects a wheel, and runs it with the service.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging import try_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINE = re.compile(r"pip install '?(mmhash[\w-]*)(?:\[([\w,]+)\])?'?")

# An import that needs the extra.
IMPORTS = {
    "bulk": "pyarrow",
    "client": "mmhash.client",
    "envoy": "mmhash_service.picker.server",
    "media": "av",
    "otel": "opentelemetry.trace",
    "service": "mmhash_service.http.app",
}
PROGRAM = """
import sys, numpy, mmhash
assert "torch" not in sys.modules
print(mmhash.key(numpy.arange(12, dtype=numpy.uint8).reshape(3, 4)))
"""


def install_lines() -> list[str]:
    """Return the extras of each line that no other line has among its own."""
    found = {match.groups("") for page in PAGES for match in LINE.finditer(page.read_text())}
    assert {distribution for distribution, _ in found} == {"mmhash-keys"}
    lines = {frozenset(filter(None, extras.split(","))) for _, extras in found}
    return sorted(",".join(sorted(one)) for one in lines if not any(one < more for more in lines))


def copy_tracked_files(target: Path) -> None:
    """Copy the repository without untracked files: a build there disturbs no other test."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT).split(b"\0")
    for name in filter(None, map(os.fsdecode, listed)):
        source, copy = ROOT / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.symlink_to(source.readlink())
        elif source.is_file():
            copy.write_bytes(source.read_bytes())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of all tracked files."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    copy_tracked_files(source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target)]
    subprocess.run([*build, str(source)], check=True, capture_output=True)
    (built,) = target.glob("mmhash_keys-*.whl")
    return built


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, without extras."""
    return try_wheel.install(str(wheel), tmp_path_factory.mktemp("core") / "venv")


@pytest.mark.parametrize("extras", install_lines())
def test_each_install_line_of_the_docs_works(wheel: Path, tmp_path: Path, extras: str) -> None:
    links = ("--find-links", str(wheel.parent), "--only-binary", "mmhash-keys")
    binaries = try_wheel.install(f"mmhash-keys[{extras}]", tmp_path / "venv", links)
    program = "".join(f"import {IMPORTS[extra]}\n" for extra in extras.split(","))
    subprocess.run([binaries / "python", "-c", program], check=True, cwd=tmp_path)


def test_the_core_installs_alone_and_works(core: Path, tmp_path: Path) -> None:
    python = str(core / "python")
    listed = [*try_wheel.pip_of(core), "list", "--format", "freeze"]
    names = subprocess.check_output(listed, text=True)
    installed = {line.split("=")[0].lower() for line in names.split()}
    assert installed <= {"blake3", "mmhash-keys", "numpy", "xxhash", "typing_extensions"}
    alone = subprocess.check_output([python, "-c", PROGRAM], text=True, cwd=tmp_path)
    assert alone == subprocess.check_output([sys.executable, "-c", PROGRAM], text=True)
    command = subprocess.run(
        [core / "mmhash", "env"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert command.returncode == 1
    assert "pip install 'mmhash-keys[cli]'" in command.stderr


def test_a_users_program_has_types(core: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "packaging" / "user_program.py", tmp_path)
    python = str(core / "python")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, "user_program.py"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "Success: no issues found in 1 source file\n")
