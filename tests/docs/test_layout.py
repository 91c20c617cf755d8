"""Each unit test file tests a module of the same name."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"


def is_of_a_module(path: Path) -> bool:
    package = path.parent.relative_to(UNIT)
    folder = (ROOT / "service" if package.parts[0] == "mmhash_service" else ROOT) / package
    name = path.stem.removeprefix("test_")
    names = ("__init__.py",) if name == "init" else (f"{name}.py", f"{name}.cuh", name)
    return any((folder / one).exists() for one in names)


def test_each_unit_test_has_its_module() -> None:
    assert [path for path in UNIT.rglob("test_*.py") if not is_of_a_module(path)] == []
