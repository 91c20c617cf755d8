from pathlib import Path

import pytest

from mmhash.compile import PassManager
from tests.unit.mmhash.compile.passes_for_tests import Raises, TimesInstead, traced


def test_each_graph_is_kept_before_and_after_each_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMHASH_COMPILE_DUMP", str(tmp_path / "dump"))
    manager = PassManager([TimesInstead(), Raises()])
    with pytest.warns(UserWarning, match="was rolled back"):
        manager(traced())
    manager(traced())
    first, second = sorted(
        (tmp_path / "dump").iterdir(), key=lambda path: int(path.name.split("-")[1])
    )
    names = {"0-times_instead.before.py", "0-times_instead.after.py", "0-times_instead.diff",
             "1-raises.before.py", "1-raises.after.py", "1-raises.diff"}  # fmt: skip
    assert (
        {path.name for path in first.iterdir()} == names == {path.name for path in second.iterdir()}
    )

    def text(name: str) -> str:
        return (first / name).read_text()

    assert "x + x" in text("0-times_instead.before.py")
    assert "x * 3" in text("0-times_instead.after.py")
    changed = [line for line in text("0-times_instead.diff").splitlines() if line[0] in "+-"][2:]
    assert [line[0] for line in changed] == ["-", "+"]
    assert "x + x" in changed[0]
    assert "x * 3" in changed[1]
    # What was rolled back has changed nothing.
    assert (
        text("1-raises.before.py") == text("1-raises.after.py") == text("0-times_instead.after.py")
    )
    assert text("1-raises.diff") == ""
    for name in ("0-times_instead.before.py", "0-times_instead.after.py"):
        compile(text(name), name, "exec", dont_inherit=True)  # it is code


def test_without_the_variable_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MMHASH_COMPILE_DUMP", raising=False)
    monkeypatch.chdir(tmp_path)
    PassManager([TimesInstead()])(traced())
    assert list(tmp_path.iterdir()) == []
