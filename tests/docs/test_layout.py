"""Each unit test file has its module, and only tests/support starts services."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"
TESTS = sorted(path for path in UNIT.rglob("test_*.py"))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(UNIT)))
def test_a_unit_test_has_its_module(path: Path) -> None:
    package = path.parent.relative_to(UNIT)
    folder = (ROOT / "service" if package.parts[0] == "mmhash_service" else ROOT) / package
    name = path.stem.removeprefix("test_")
    names = ("__init__.py",) if name == "init" else (f"{name}.py", f"{name}.cuh", name)
    assert any((folder / one).exists() for one in names), (
        f"{folder.relative_to(ROOT)} has no {name}"
    )


def test_services_are_started_by_tests_support_only() -> None:
    listed = subprocess.check_output(["git", "ls-files", "tests"], cwd=ROOT, text=True)
    own = "tests/docs/test_layout.py"
    for name in listed.split():
        if name.endswith(".py") and not name.startswith("tests/support/") and name != own:
            text = (ROOT / name).read_text() if (ROOT / name).exists() else ""
            assert not re.search(r'Popen\([^)]*"serve"', text), name
            assert 'which("redis-server")' not in text, name
