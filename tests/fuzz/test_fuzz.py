"""Each target passes its cases, and a short run of the fuzzer; `make fuzz` is the long one."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atheris", reason="has no wheel for this Python")

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
CASES = sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*") if path.is_file())


@pytest.mark.parametrize("case", CASES)
def test_past_findings_stay_fixed(case: str) -> None:
    from tests.fuzz.targets import run

    run(case.partition("/")[0], (CORPUS / case).read_bytes())


def test_every_target_has_cases() -> None:
    from tests.fuzz.targets import TARGETS

    assert {case.partition("/")[0] for case in CASES} == TARGETS.keys()


@pytest.mark.slow
def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--runs", "500", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert ", 0 targets failed" in done.stdout
