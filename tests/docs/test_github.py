"""The workflow and the issue forms are valid, and name targets that exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def check(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    return subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False)


def test_the_workflow_is_valid() -> None:
    done = check("vendor.github-workflows", *WORKFLOWS)
    assert done.returncode == 0, done.stdout


def test_the_issue_forms_are_valid() -> None:
    forms = [path for path in FORMS if path.name != "config.yml"]
    for schema, paths in (("issue-forms", forms), ("issue-config", set(FORMS) - set(forms))):
        done = check(f"vendor.github-{schema}", *paths)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "path",
    [*WORKFLOWS, ROOT / ".ci" / "run", ROOT / "CONTRIBUTING.md", ROOT / ".pre-commit-config.yaml"],
    ids=lambda path: path.name,
)
def test_every_target_that_is_named_exists(path: Path) -> None:
    text = path.read_text()
    assert set(re.findall(r"(?:`|: |^)make ([a-z-]+)", text, re.MULTILINE)) <= TARGETS


def test_every_tool_of_pre_commit_is_pinned() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    pinned = (ROOT / "constraints.txt").read_text()
    for hook in config["repos"][0]["hooks"]:
        tool = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert f"\n{tool}==" in pinned, tool
