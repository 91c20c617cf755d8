"""docs/fleet.md shows the fit of the traces; it and the README show the newest results."""

import subprocess
import sys
from pathlib import Path

from bench.fleet import report

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fleet.md").read_text()


def test_the_page_shows_the_fit() -> None:
    command = [sys.executable, "-m", "bench.trace"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"<!-- fit -->\n{printed}<!-- end of fit -->" in PAGE


def test_the_page_shows_the_results() -> None:
    shown = report.table(report.read(report.CSV))
    assert report.TABLE.read_text() == shown
    assert f"<!-- fleet -->\n{shown}<!-- end of fleet -->" in PAGE


def test_the_readme_shows_lines_of_the_results() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = readme.split("<!-- fleet -->\n")[1].split("<!-- end of fleet -->")[0].splitlines()
    table = report.TABLE.read_text().splitlines()
    assert shown[:2] == table[:2]
    assert len(shown) == 14
    assert set(shown) <= set(table)
