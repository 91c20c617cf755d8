"""The table of a comparison: its rounds together, and newer runs in place of older ones."""

from pathlib import Path

import pytest

from bench.fleet import report
from bench.fleet.compare import Run


def run(policy: str, cached_percent: float, seed: int = 0, trace: str = "t") -> Run:
    return Run(
        "vllm@0.32.0", 2, trace, policy, 0, 10, 1000, 10 * int(cached_percent),
        cached_percent, 700, 12.5, 99.0, 50.0, 3.0, 2.0, 100, 300, 45.0, seed,
    )  # fmt: skip


def test_the_most_cached_is_bold_and_seeds_have_a_mean_and_a_range() -> None:
    runs = [run("a", 10.0), run("a", 30.0, 1), run("a", 41.0, 2), run("b", 20.0)]
    lines = report.table(runs).splitlines()
    assert len(lines) == 4
    cached = "**27.0 %** (10.0 to 41.0)"
    assert lines[2] == f"| 2 vllm@0.32.0 | t (1.5) | a | {cached} | 700 | 12 ms | 99 ms |"
    assert "| b | 20.0 % |" in lines[3]


def test_without_reuse_nothing_is_bold() -> None:
    assert "**" not in report.table([run("a", 0.0), run("b", 0.0)])


def test_newer_runs_replace_older_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CSV", "TABLE"):
        monkeypatch.setattr(report, name, tmp_path / name)
    report.keep([run("a", 10.0), run("a", 10.0, trace="other")])
    report.keep([run("a", 20.0)])
    kept = report.read(report.CSV)
    assert kept == [run("a", 10.0, trace="other"), run("a", 20.0)]
    assert report.TABLE.read_text() == report.table(kept)
