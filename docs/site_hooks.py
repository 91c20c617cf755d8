"""Hooks of mkdocs: the generated pages, and the files outside docs/ that pages link to."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]

# Links to the repository: all pages are in docs/ itself.
_OUTSIDE = re.compile(r"\[((?:[^\]\\]|\\.)*)\]\(\.\./([^)#]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the overview, the page of the command line, and each file that a page links to."""
    files.append(File.generated(config, "index.md", content=overview()))
    files.append(File.generated(config, "cli.md", content=command_line()))
    targets = {
        match[2]
        for page in (ROOT / "docs").glob("*.md")
        for match in _OUTSIDE.finditer(page.read_text())
    }
    for target in sorted(targets):
        if (ROOT / target).is_file():
            files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to files outside docs/ at their copies; a folder is only named."""
    return _OUTSIDE.sub(_inside, markdown)


def _inside(match: re.Match[str]) -> str:
    text, target = match.groups()
    return f"[{text}]({target})" if (ROOT / target).is_file() else text


def overview() -> str:
    """Return the README with its links as they are from docs/."""
    text = (ROOT / "README.md").read_text().replace("](docs/", "](")
    return re.sub(r"\[(\w+)\]\([A-Z]+\.md\)", r"\1", text)  # pages of the repository only


def command_line() -> str:
    """Return the help of all commands as Markdown, from the program itself."""
    command = [sys.executable, "-m", "typer", "mmhash.cli.app", "utils", "docs", "--name", "mmhash"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)  # noqa: S603
    text = unescape(done.stdout).replace("# `mmhash`", "# Command line", 1)
    # In Markdown a word in angle brackets is HTML, unless it is code.
    return "\n".join(_escaped(line) for line in text.splitlines()) + "\n"


def _escaped(line: str) -> str:
    if line.startswith("$"):
        return line
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part[:1] == "`" else part.replace("<", "&lt;") for part in parts)
