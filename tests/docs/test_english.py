"""Plain English: docstrings begin with what a thing is or does, and programs are "it"."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("mmhash", "service", "bench", "tests", "examples", "docs", "deploy")

FIRST_WORD = re.compile(r"(What|Who|Whoever|Whom|Whose|Whether|Where|Which|That|How)\b")
QUOTED = re.compile(r"[\"']\s*" + FIRST_WORD.pattern)
PRONOUN = re.compile(r"\b(he|him|his|himself|she|hers|herself)\b", re.IGNORECASE)
PHRASE = re.compile(r"\b(whoever|without a word|is none of ours|of which the)\b", re.IGNORECASE)
ANSWER = re.compile(r"(Return|Say|Tell|Check) (whether|if)\b")


def tracked(suffix: str) -> list[Path]:
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT
    )
    names = [name for name in listed.decode().split("\0") if name.endswith(suffix)]
    paths = [ROOT / name for name in names if "/" not in name or name.split("/")[0] in FOLDERS]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    source = path.read_text()
    if not QUOTED.search(source):  # parsing all programs takes 7 s
        return
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), text


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The comments and strings of a program, or the lines of a page, if they can have a match."""
    text = path.read_text()
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    if not (PRONOUN.search(text) or PHRASE.search(text)):  # tokenizing all programs takes 7 s
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            yield token.start[0], token.string


def test_a_docstring_is_an_imperative_or_a_noun_phrase() -> None:
    """A question is answered with "Return True if", as in the standard library."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in tracked(".py")
        for line, text in docstrings(path)
        if FIRST_WORD.match(text) or ANSWER.match(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("suffix", [".py", ".md", ".toml", ".yaml", ".js", ".cuh", ".cu"])
def test_a_program_is_it_and_a_person_is_they(suffix: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r}"
        for path in tracked(suffix)
        if path != Path(__file__)
        for line, text in prose(path)
        for match in [PRONOUN.search(text) or PHRASE.search(text)]
        if match
    ]
    assert not found, "\n".join(found)
