"""The Dockerfile and .dockerignore, without a build: `make image` builds, and test_image.py starts it."""

import re
import subprocess
import tomllib
from io import BytesIO
from pathlib import Path

import pathspec
import pytest
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = DockerfileParser(fileobj=BytesIO((ROOT / "Dockerfile").read_bytes()))


def values(name: str) -> list[str]:
    return [found["value"] for found in DOCKERFILE.structure if found["instruction"] == name]


def ignored(name: str) -> bool:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    # Docker's patterns start at the root; git's do so only with a slash.
    lines = [re.sub(r"^(!?)(?=[^#])", r"\1/", line) for line in lines]
    return pathspec.GitIgnoreSpec.from_lines(lines).match_file(name)


def test_what_is_copied_is_there_and_passes_the_dockerignore() -> None:
    copied = [value for value in values("COPY") if not value.startswith("--from=")]
    sources = [source for value in copied for source in value.split()[:-1]]
    assert "mmhash" in sources
    assert all((ROOT / source).exists() for source in sources)
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    passed = {name for name in tracked if not ignored(name)}
    assert passed == {name for name in tracked if name in sources or name.split("/")[0] in sources}


@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        ".venv/bin/python",
        ".env",
        "id_ed25519",
        "tests/conftest.py",
        "mmhash/__pycache__/cpu.cpython-311.pyc",
    ],
)
def test_nothing_else_gets_into_the_build(name: str) -> None:
    assert ignored(name)


def test_the_version_is_the_projects() -> None:
    assert DOCKERFILE.labels["org.opencontainers.image.version"] == PROJECT["version"]


def test_no_secret_is_an_argument_or_in_the_environment() -> None:
    set_by = " ".join([*values("ARG"), *values("ENV")])
    assert not re.search(r"secret|token|password|passwd|key|pip_", set_by, re.IGNORECASE)
