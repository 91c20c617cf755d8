"""The bar: seen by a person who waits for a long file, and by nobody else."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmhash.cli.progress import LONG

pty = pytest.importorskip("pty")


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    file = tmp_path / "long"
    with file.open("wb") as sparse:
        sparse.truncate(LONG)
    return file


def stderr_of(*arguments: str | Path, terminal: bool, **environment: str) -> str:
    read_end, write_end = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "mmhash", "sum", *arguments],
        stdout=subprocess.PIPE,
        stderr=write_end,
        env=os.environ | {"TERM": "xterm", "FORCE_COLOR": "1"} | environment,
    ) as process:
        os.close(write_end)
        said = b""
        with contextlib.suppress(OSError):  # a terminal whose other side is closed
            while some := os.read(read_end, 4096):
                said += some
        os.close(read_end)
        assert process.stdout is not None
        assert process.stdout.read().count(b"\n") == len([a for a in arguments if a != "--quiet"])
        assert process.wait() == 0
    return said.decode()


def test_long_file_on_a_terminal(long_file: Path) -> None:
    short_file = long_file.with_name("short")
    short_file.write_bytes(b"foo")
    said = stderr_of(short_file, long_file, terminal=True)
    assert "long" in said
    assert "MiB" in said
    assert "short" not in said
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l")  # the cursor is back


def test_nobody_asked_or_nobody_looks(long_file: Path) -> None:
    assert stderr_of("--quiet", long_file, terminal=True) == ""
    assert stderr_of(long_file, terminal=True, TERM="dumb") == ""
    assert stderr_of(long_file, terminal=False) == ""
