"""The README's programs, responses and links, and the page of the structure, are true."""

import ast
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


def modules() -> list[Path]:
    listed = subprocess.check_output(["git", "ls-files", "mmhash", "service", "bench"], cwd=ROOT)
    paths = [ROOT / name for name in listed.decode().split() if name.endswith(".py")]
    return [path for path in paths if path.exists()]


def test_structure_has_a_line_for_each_package() -> None:
    page = (ROOT / "docs" / "structure.md").read_text()
    for folder in sorted({path.parent.relative_to(ROOT) for path in modules()}):
        assert f"| `{folder}/` |" in page, f"docs/structure.md has no line for {folder}/"


def test_structure_names_only_what_exists() -> None:
    page = (ROOT / "docs" / "structure.md").read_text()
    for name in re.findall(r"`((?:mmhash|service|bench|examples|tests|deploy)/[\w/.]*)`", page):
        assert (ROOT / name).exists(), name


def test_each_module_says_what_it_does() -> None:
    for path in modules():
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        first = text.split("\n\n")[0]
        name = path.relative_to(ROOT)
        assert first.endswith((".", ":")), f"{name}: the docstring does not begin with a sentence"
        assert len(first.split()) >= 3, f"{name}: the docstring says too little"
