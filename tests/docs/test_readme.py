"""The README's answers are those of a service; every link and every path of the structure page exists."""

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_answers_of_the_service(server_url: str) -> None:
    calls = re.findall(r"^\$ (.*curl .*)\n(\{.*\})$", README, re.MULTILINE)
    assert calls
    for line, shown in calls:
        command = line.replace("http://127.0.0.1:8780", server_url)
        done = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True
        )
        answer, expected = json.loads(done.stdout), json.loads(shown)
        answer.pop("elapsed_ms")
        expected.pop("elapsed_ms")
        assert answer == expected


def test_every_link_leads_somewhere() -> None:
    names = "README.md", "CONTRIBUTING.md", "SECURITY.md"
    for page in [*map(ROOT.joinpath, names), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_structure_names_only_what_exists() -> None:
    page = (ROOT / "docs" / "structure.md").read_text()
    for name in re.findall(r"`((?:mmhash|service|bench|examples|tests|deploy)/[\w/.]*)`", page):
        assert (ROOT / name).exists(), name
