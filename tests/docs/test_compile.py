"""The program of docs/cuda.md about torch.compile prints what the page shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOC = (Path(__file__).parents[2] / "docs" / "cuda.md").read_text()
_, EXAMPLE = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
REPORT = re.search(r"```text\n(.*?)```", DOC, re.DOTALL)

# An installation knows the backend by its name; one older than its entry point does not.
REGISTER = """
import torch, mmhash.compile
if "mmhash" not in torch._dynamo.list_backends(exclude_tags=()):
    torch._dynamo.register_backend(mmhash.compile.backend, name="mmhash")
"""
# Inductor needs a C++ compiler, which a bare machine does not have.
EAGER = ('backend="mmhash"', 'backend="mmhash", options={"then": "eager"}')


def printed_by(program: str, folder: Path) -> list[list[str]]:
    """Return the words that a program prints, line by line."""
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, folder / "program.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_the_report_is_the_one_that_is_shown(tmp_path: Path) -> None:
    assert REPORT
    shown = [line.split() for line in REPORT[1].splitlines()]
    printed = printed_by(REGISTER + EXAMPLE.replace(*EAGER), tmp_path)
    # All but the times, and the uuids, which any change of a source changes.
    assert [line[:5] for line in printed] == [line[:5] for line in shown]
