"""The threat model and the attacks are one: each defence has its file, and each file its line.

This attacks nothing: it keeps the page true.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()


def test_each_file_has_a_line_and_each_line_a_file() -> None:
    linked = re.findall(r"\(\.\./tests/attacks/(\w+\.py)\)", PAGE)
    files = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
    assert len(linked) == len(set(linked))
    assert set(linked) == files


def test_each_file_says_what_the_attacker_wants_and_what_stops_him() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        text = path.read_text()
        want, blank, stop, end = text.split("\n", 4)[:4]
        assert re.fullmatch(r'"""\S.*[.:]', want), path.name
        assert (blank, end) == ("", '"""'), path.name
        assert stop.endswith("."), path.name


def test_every_link_leads_somewhere() -> None:
    for page in (ROOT / "docs" / "threat-model.md", ROOT / "SECURITY.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), target
