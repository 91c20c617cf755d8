"""The programs and requests of the README have the results that it shows."""

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_library_in_ten_lines() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(program, "README.md", "exec"), {})
    assert len(program.strip().splitlines()) <= 10


def test_the_answers_of_the_service(server_url: str) -> None:
    calls = re.findall(r"^\$ (.*curl .*)\n(\{.*\})$", README, re.MULTILINE)
    assert len(calls) == 2
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
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_structure_has_a_line_a_module() -> None:
    page = (ROOT / "docs" / "structure.md").read_text()
    listed = subprocess.check_output(["git", "ls-files", "mmhash", "service", "bench"], cwd=ROOT)
    for name in listed.decode().split():
        path = ROOT / name
        trivial = path.stem in {"__init__", "__main__"}
        if (
            path.suffix == ".py"
            and path.exists()
            and not (trivial and name != "mmhash/__init__.py")
        ):
            assert f"`{name}`" in page, f"docs/structure.md has no line for {name}"
