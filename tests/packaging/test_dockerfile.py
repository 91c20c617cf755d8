"""The Dockerfile read instruction by instruction: what must hold of it before anything is built.

`make image` builds it, and test_image.py starts what it built.
"""

import json
import re
import subprocess
import tomllib
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pathspec
import pytest
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


class Instruction(NamedTuple):
    name: str
    value: str


@pytest.fixture(scope="module")
def dockerfile() -> DockerfileParser:
    return DockerfileParser(fileobj=BytesIO((ROOT / "Dockerfile").read_bytes()))


@pytest.fixture(scope="module")
def instructions(dockerfile: DockerfileParser) -> list[Instruction]:
    return [
        Instruction(found["instruction"], found["value"])
        for found in dockerfile.structure
        if found["instruction"] != "COMMENT"
    ]


@pytest.fixture(scope="module")
def final(instructions: list[Instruction]) -> list[Instruction]:
    """The instructions of the last stage, which makes the image."""
    starts = [at for at, found in enumerate(instructions) if found.name == "FROM"]
    assert len(starts) == 2
    return instructions[starts[-1] :]


def only(instructions: list[Instruction], name: str) -> str:
    (value,) = (found.value for found in instructions if found.name == name)
    return value


def test_both_stages_have_the_base_that_the_argument_names(instructions: list[Instruction]) -> None:
    bases = [found.value for found in instructions if found.name == "FROM"]
    assert bases == ["${BASE} AS build", "${BASE}"]
    first = instructions[0]
    assert first.name == "ARG"
    name, _, tag = first.value.removeprefix("BASE=").partition(":")
    assert name == "docker.io/library/python"
    version = re.fullmatch(r"3\.(\d+)-slim-[a-z]+", tag)
    assert version is not None
    assert PROJECT["requires-python"] == ">=3.11"
    assert int(version[1]) >= 11


def test_what_is_copied_is_there_and_passes_the_dockerignore(
    instructions: list[Instruction],
) -> None:
    sources = [
        source
        for found in instructions
        if found.name == "COPY" and not found.value.startswith("--from=")
        for source in found.value.split()[:-1]
    ]
    assert "mmhash" in sources
    assert all((ROOT / source).exists() for source in sources)
    assert context() == {
        name for name in tracked() if name in sources or name.split("/")[0] in sources
    }


def tracked() -> list[str]:
    return subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()


def context() -> set[str]:
    return {name for name in tracked() if not ignored(name)}


def ignored(name: str) -> bool:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    # Docker's patterns start at the root; git's do so only with a slash.
    lines = [re.sub(r"^(!?)(?=[^#])", r"\1/", line) for line in lines]
    return pathspec.GitIgnoreSpec.from_lines(lines).match_file(name)


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


def test_the_extras_are_the_projects(instructions: list[Instruction]) -> None:
    assert Instruction("ARG", "EXTRAS=service") in instructions
    assert PROJECT["optional-dependencies"].keys() >= {"service", "cuda"}


def test_the_install_is_pinned_and_leaves_nothing_behind(
    instructions: list[Instruction], final: list[Instruction]
) -> None:
    run = only(instructions, "RUN")
    assert "PIP_CONSTRAINT=/src/constraints.txt" in run
    assert "--no-cache-dir" in run
    copied = [found.value for found in final if found.name in {"COPY", "ADD", "RUN"}]
    assert copied == ["--from=build /opt/mmhash /opt/mmhash"]


def test_nobody_runs_as_root(final: list[Instruction]) -> None:
    user, group = only(final, "USER").split(":")
    assert int(user) > 0
    assert int(group) > 0


def test_commands_are_lists_so_that_signals_reach_the_server(final: list[Instruction]) -> None:
    assert json.loads(only(final, "ENTRYPOINT")) == ["mmhash"]
    assert json.loads(only(final, "CMD")) == ["serve"]
    assert only(final, "STOPSIGNAL") == "SIGTERM"


def test_the_health_check_is_the_command(final: list[Instruction]) -> None:
    options, _, command = only(final, "HEALTHCHECK").partition("CMD")
    assert json.loads(command)[:2] == ["mmhash", "health"]
    timeout = re.search(r"--timeout=(\d+)s", options)
    assert timeout is not None
    assert int(timeout[1]) > 5  # its own, after which it says what it found


def test_its_port_is_the_settings_own(final: list[Instruction]) -> None:
    from mmhash_service.settings import Settings

    assert int(only(final, "EXPOSE")) == Settings.model_fields["port"].default


def test_labels_say_what_it_is(dockerfile: DockerfileParser) -> None:
    prefix = "org.opencontainers.image."
    labels = {name.removeprefix(prefix): value for name, value in dockerfile.labels.items()}
    assert labels.keys() == {"title", "description", "version", "revision", "licenses"}
    assert labels["title"] == "mmhash"
    assert labels["version"] == PROJECT["version"]
    assert labels["licenses"] == PROJECT["license"]


def test_no_secret_is_an_argument_or_in_the_environment(instructions: list[Instruction]) -> None:
    set_by = " ".join(found.value for found in instructions if found.name in {"ARG", "ENV"})
    assert not re.search(r"secret|token|password|passwd|key|pip_", set_by, re.IGNORECASE)
