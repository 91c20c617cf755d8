"""A sum file that names what has no end: a check that never returns, or that reads a device.

Only regular files are read; any other is a line that failed, and a FIFO is not even opened.
"""

import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.service import TIMEOUT_S

DIGEST = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"  # of no bytes


def mmhash(*arguments: str, stdin: int | None = subprocess.DEVNULL) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "mmhash", *arguments]
    done = subprocess.run(
        command, stdin=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


def listen(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))


NAMED: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a link to a FIFO": lambda path: (
        os.mkfifo(f"{path}.fifo"),  # type: ignore[func-returns-value]
        path.symlink_to(f"{path}.fifo"),  # type: ignore[func-returns-value]
    ),
    "a socket": listen,
    "a directory": Path.mkdir,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to a terminal": lambda path: path.symlink_to(os.ttyname(pty.openpty()[1])),
    "a link to stdin": lambda path: path.symlink_to("/dev/stdin"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a descriptor": lambda path: path.symlink_to("/proc/self/fd/0"),
}


# Each is a process of its own, which takes a second of CPU.
FAST = {"a FIFO", "a link to /dev/zero", "a link to stdin"}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=[] if name in FAST else pytest.mark.slow)
        for name, make in NAMED.items()
    ],
)
def test_check_returns_whatever_a_sum_file_names(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    named, regular, sums = tmp_path / "named", tmp_path / "regular", tmp_path / "sums"
    make(named)
    regular.touch()
    sums.write_text(f"{DIGEST}  {named}\n{DIGEST}  {regular}\n")
    reading, writing = os.pipe()  # stdin has no end either
    try:
        code, out, err = mmhash("check", str(sums), stdin=reading)
    finally:
        os.close(reading)
        os.close(writing)
    assert code == 1
    first, second = out.splitlines()
    assert first.startswith(f"{named}: FAILED (")
    assert second == f"{regular}: OK"
    assert "1 listed file could not be read" in err


@pytest.mark.parametrize(
    "name",
    [
        "/dev/zero",
        pytest.param("/dev/urandom", marks=pytest.mark.slow),
        pytest.param("/dev/full", marks=pytest.mark.slow),
        pytest.param("/dev", marks=pytest.mark.slow),
        pytest.param("-", marks=pytest.mark.slow),
    ],
)
def test_check_returns_whatever_device_is_named(name: str, tmp_path: Path) -> None:
    sums = tmp_path / "sums"
    sums.write_text(f"{DIGEST}  {name}\n")
    reading, writing = os.pipe()
    try:
        code, out, _ = mmhash("check", str(sums), stdin=reading)
    finally:
        os.close(reading)
        os.close(writing)
    assert code == 1
    assert out.startswith(f"{name}: FAILED (not a regular file: ")


def test_check_names_what_no_system_takes(tmp_path: Path) -> None:
    sums = tmp_path / "sums"
    sums.write_text(f"{DIGEST}  {'x' * 300}\n{DIGEST}  {'x/' * 3000}\n")
    code, out, _ = mmhash("check", str(sums))
    assert code == 1
    assert out.count("FAILED (") == 2


def test_check_opens_no_fifo(tmp_path: Path) -> None:
    """To open it would let a writer go on, and take what it writes from its reader."""
    fifo, sums = tmp_path / "fifo", tmp_path / "sums"
    os.mkfifo(fifo)
    sums.write_text(f"{DIGEST}  {fifo}\n")
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(fifo, os.O_WRONLY)
    os.write(writing, b"for another reader")
    assert mmhash("check", str(sums))[0] == 1
    assert os.read(reading, 100) == b"for another reader"
    os.close(reading)
    os.close(writing)


def test_a_fifo_that_the_user_names_is_read_as_b3sum_does(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "mmhash", "sum", str(fifo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        fifo.write_bytes(b"")
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert out == f"{DIGEST}  {fifo}\n"


def test_a_sum_file_may_come_through_a_pipe(tmp_path: Path) -> None:
    regular = tmp_path / "regular"
    regular.touch()
    reading, writing = os.pipe()
    os.write(writing, f"{DIGEST}  {regular}\n".encode())
    os.close(writing)
    code, out, _ = mmhash("check", stdin=reading)
    os.close(reading)
    assert (code, out) == (0, f"{regular}: OK\n")
