"""A file name of escape sequences, which paints, retitles or types in the terminal that shows it.

A terminal gets escapes for characters that do not print. A pipe or file gets the bytes unchanged.
"""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

NAMES = {
    "a title": "\x1b]0;owned\x07",
    "a colour": "\x1b[31mred\x1b[0m",
    "a screen cleared": "\x1b[2J\x1b[H",
    "a question that types": "\x1b[6n",
    "a clipboard": "\x1b]52;c;cm0gLXJmIC8K\x07",
    "8-bit CSI": "a\x9b31m",
    "8-bit OSC": "a\x9d0;owned\x9c",
    "backspaces": "evil\x08\x08\x08\x08good",
    "a carriage return": "evil\rgood",
    "a line feed": "evil\nother: OK",
    "a vertical tab": "a\x0bb\x0c",
    "a bell": "a\x07",
    "DEL": "a\x7f",
    "a tab": "a\tb",
    "a next line": "a\x85b",
    "a right-to-left override": "gnp.\u202eexe",
    "an isolate": "a\u2066b\u2069",
    "an Arabic letter mark": "a\u061cb",
    "a zero-width space": "a\u200bb",
    "a line separator": "a\u2028b",
    "a byte order mark": "\ufeffa",
    "a tag character": "a\U000e0041",
    "a surrogate escape": "a\udc9b31m",
    "private use": "a\ue000",
}
# No name of these may come through raw; a terminal ends lines with both.
ALLOWED = {"\n", "\r"}


def on_terminal(*arguments: str, cwd: Path) -> tuple[int, str]:
    """The exit status, and what a terminal got of stdout and stderr."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "mmhash", *arguments]
    environment = {**os.environ, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "500"}
    with subprocess.Popen(
        [os.fsencode(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        cwd=cwd,
        env=environment,
    ) as process:
        os.close(slave)
        printable, until = b"", time.monotonic() + 60
        while time.monotonic() < until:
            if not select.select([master], [], [], 1)[0]:
                continue
            try:
                piece = os.read(master, 65536)
            except OSError:  # Linux says so when the last writer is gone
                break
            if not piece:
                break
            printable += piece
        os.close(master)
    return process.returncode, printable.decode()  # UTF-8 throughout


def assert_harmless(printable: str) -> None:
    raw = {character for character in printable if not character.isprintable()} - ALLOWED
    assert not raw, ascii(printable)


def touch(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"content")


@pytest.mark.slow
def test_key_shows_no_name_raw(tmp_path: Path) -> None:
    for name in NAMES.values():
        touch(tmp_path, name)
    code, printable = on_terminal("key", "--", *NAMES.values(), cwd=tmp_path)
    assert code == 0
    assert_harmless(printable)
    assert len(printable.splitlines()) == len(NAMES)


NAME = NAMES["a title"] + NAMES["a right-to-left override"] + NAMES["8-bit CSI"]
COMMANDS = {
    "a missing file": ("key", "missing" + NAME),
    "an npy file": ("key", NAME + ".npy"),
    "explain for an engine": ("explain", NAME, "--engine", NAME),
    "an option": ("key", "--" + NAME),
    "bulk of a missing folder": ("bulk", "missing" + NAME, "--out", "out"),
    "health": ("health", "http://" + NAME),
    "a setting": ("serve", "--set", NAME + "=1"),
}
# Each is a process of its own, which takes a second of CPU: `make test` runs one of each kind.
FAST = {"an npy file", "explain for an engine", "a setting"}


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(arguments, id=name, marks=[] if name in FAST else pytest.mark.slow)
        for name, arguments in COMMANDS.items()
    ],
)
def test_no_command_shows_a_name_raw(arguments: tuple[str, ...], tmp_path: Path) -> None:
    for suffix in ("", ".npy"):
        touch(tmp_path, NAME + suffix)
    _, printable = on_terminal(*arguments, cwd=tmp_path)
    assert_harmless(printable)
    assert "Traceback" not in printable
    assert printable.strip()


def test_a_pipe_gets_the_bytes_as_b3sum_writes_them(tmp_path: Path) -> None:
    name = NAMES["a colour"] + NAMES["an isolate"]
    touch(tmp_path, name)
    command = [sys.executable, "-m", "mmhash", "key", "--", name]
    out = subprocess.check_output(command, cwd=tmp_path)
    assert out.endswith(f"  {name}\n".encode())
