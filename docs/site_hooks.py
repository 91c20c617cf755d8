"""Hooks of mkdocs: the generated pages, and the files outside docs/ that pages link to."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

import mmhash

ROOT = Path(__file__).parents[1]

# Links to the repository: all pages are in docs/ itself.
_OUTSIDE = re.compile(r"\[((?:[^\]\\]|\\.)*)\]\(\.\./([^)#]+)\)")


class FencedExamples(griffe.Extension):
    """Marks the examples of docstrings as code: without a fence, Markdown reads `>>>` as quotes."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence each example, up to an empty line."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)


_EXAMPLE = re.compile(r"^>>> .*(?:\n.*\S.*)*", re.MULTILINE)


def on_config(config: Any) -> None:
    """Show the version on each page."""
    config.site_name = f"mmhash {mmhash.__version__}"


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and each file that a page links to."""
    for name, content in generated():
        files.append(File.generated(config, name, content=content))
    files.remove(files.src_uris["api.md"])
    files.append(File.generated(config, "api.md", content=api_index()))
    targets = {
        match[2]
        for page in (ROOT / "docs").glob("*.md")
        for match in _OUTSIDE.finditer(page.read_text())
    }
    for target in sorted(targets):
        if (ROOT / target).is_file():
            files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files outside docs/ at their copies; a folder is only named."""
    if page.file.generated_by:
        page.edit_url = None
    return _OUTSIDE.sub(_inside, markdown)


def generated() -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each generated page."""
    yield "index.md", overview()
    yield "install.md", installation()
    yield "changelog.md", _of_docs("CHANGELOG.md")
    yield "cli.md", command_line()
    for title, body in api_sections():
        # The search shows guides first.
        yield api_page(title), f"---\nsearch:\n  boost: 0.3\n---\n# {title}\n{body}"


def _inside(match: re.Match[str]) -> str:
    text, target = match.groups()
    return f"[{text}]({target})" if (ROOT / target).is_file() else text


def overview() -> str:
    """Return the README with its links as they are from docs/."""
    return _of_docs("README.md")


def _of_docs(name: str) -> str:
    text = (ROOT / name).read_text().replace("](docs/", "](")
    return re.sub(r"\[(\w+)\]\([A-Z]+\.md\)", r"\1", text)  # pages of the repository only


_INSTALLATION = """# Installation
```console
$ pip install mmhash-keys  # the library, with numpy, blake3 and xxhash
$ pip install 'mmhash-keys[service]'  # the command, the service and the gateway
```

The first release is not on PyPI yet: in a checkout, write `.` for `mmhash-keys`. Extras are
separated by commas, as in `mmhash-keys[service,otel]`:

| extra | for |
| --- | --- |
"""


def installation() -> str:
    """Return the page of the extras: each has a comment in pyproject.toml."""
    project = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    rows = (
        f"| `{name}` | {what} |\n"
        for what, name in re.findall(r"^# (.*)\n([a-z]+) = \[", project, re.MULTILINE)
    )
    commands = re.findall(r"^## Two commands\n.*?(?=^## )", overview(), re.MULTILINE | re.DOTALL)
    return "".join([_INSTALLATION, *rows, "\n", *commands])


def api_sections() -> list[tuple[str, str]]:
    """Return the title and the content of each section of the page of the API."""
    parts = re.split(r"^## (.*)\n", (ROOT / "docs" / "api.md").read_text(), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def api_page(title: str) -> str:
    """Return the name of the page of a section: all sections on one page are too long to read."""
    return f"api-{title.lower().replace(' ', '-')}.md"


def api_index() -> str:
    """Return the page that lists the others of the API."""
    head = (ROOT / "docs" / "api.md").read_text().partition("\n## ")[0]
    links = "\n".join(f"- [{title}]({api_page(title)})" for title, _ in api_sections())
    return f"{head}\n{links}\n"


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
