"""`mmhash check`: what `sum` wrote is OK, and all else is reported."""

import subprocess
import sys
from pathlib import Path

import pytest
from blake3 import blake3
from typer.testing import CliRunner, Result

from mmhash.cli.app import app
from mmhash.cli.check import MAX_LINE


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Names in sum files are relative to where the command runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def write_sums(*names: str) -> None:
    """A sum file of b3sum's, of files that exist."""
    lines = [f"{blake3(Path(name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    Path("sums").write_text("".join(lines))


def test_round_trip_of_all_names_and_both_algorithms() -> None:
    for name in ("a", "b\\c", "d\ne", "日本", "- f"):
        Path(name).write_text(name)
    for algorithm in ("blake3", "xxh3"):
        names = sorted(path.name for path in Path().iterdir() if path.name != "sums")
        Path("sums").write_text(run("sum", "--algorithm", algorithm, "--", *names).stdout)
        done = run("check", "sums")
        assert done.stdout == "- f: OK\na: OK\n\\b\\\\c: OK\n\\d\\ne: OK\n日本: OK\n"
        assert (done.exit_code, done.stderr) == (0, "")
        quiet = run("check", "--quiet", "sums")
        assert (quiet.exit_code, quiet.output) == (0, "")


def test_what_changed_is_told() -> None:
    for name in ("good", "changed", "changed too", "missing"):
        Path(name).write_text(name)
    write_sums("good", "changed", "missing", "good")
    Path("changed").write_text("Changed")
    Path("missing").unlink()
    done = run("check", "sums")
    assert done.exit_code == 1
    assert done.stdout == (
        "good: OK\nchanged: FAILED\nmissing: FAILED (No such file or directory)\ngood: OK\n"
    )
    assert done.stderr == (
        "mmhash: WARNING: 1 computed checksum did NOT match\n"
        "mmhash: WARNING: 1 listed file could not be read\n"
    )
    quiet = run("check", "--quiet", "sums", "sums")
    assert quiet.stdout == ("changed: FAILED\nmissing: FAILED (No such file or directory)\n" * 2)
    assert "2 computed checksums did NOT match" in quiet.stderr
    assert quiet.exit_code == 1


def test_malformed_line_is_told_and_the_others_are_checked() -> None:
    Path("good").write_text("good")
    write_sums("good")
    Path("sums").write_text("nonsense\n" + Path("sums").read_text() + "\n")
    done = run("check", "sums")
    assert (done.exit_code, done.stdout) == (1, "good: OK\n")
    assert done.stderr.splitlines() == [
        "mmhash: sums: line 1: not <64 or 32 hex digits>, two spaces and a name",
        "mmhash: sums: line 3: not <64 or 32 hex digits>, two spaces and a name",
        "mmhash: WARNING: 2 malformed lines",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no line of it is a checksum"),
        (b"nonsense\n", "no line of it is a checksum"),
        (b"\xff\n", "not a sum file: not UTF-8"),
        (b"a" * (MAX_LINE + 1), f"not a sum file: a line is over {MAX_LINE} bytes long"),
    ],
)
def test_file_without_sums_is_an_error(content: bytes, reason: str) -> None:
    Path("good").write_text("good")
    write_sums("good")
    Path("none").write_bytes(content)
    done = run("check", "none", "sums")
    assert (done.exit_code, done.stdout) == (1, "good: OK\n")
    assert f"mmhash: none: {reason}\n" in done.stderr


def test_unreadable_sum_file_does_not_stop_the_others(directory: Path) -> None:
    Path("good").write_text("good")
    write_sums("good")
    done = run("check", "missing", str(directory), "sums")
    assert (done.exit_code, done.stdout) == (1, "good: OK\n")
    assert done.stderr == (
        f"mmhash: missing: No such file or directory\nmmhash: {directory}: Is a directory\n"
    )


def test_longest_path_fits_in_a_line() -> None:
    name = "\\" * 4096
    Path("sums").write_text(run("sum", "sums").stdout + rf"\{'0' * 64}  {name * 2}" + "\n")
    done = run("check", "sums")
    assert f"{name * 2}: FAILED (File name too long)\n" in done.stdout


def test_sums_from_standard_input() -> None:
    Path("good").write_text("good")
    write_sums("good")
    done = subprocess.run(
        [sys.executable, "-m", "mmhash", "check"],
        input=Path("sums").read_bytes(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"good: OK\n", b"")
