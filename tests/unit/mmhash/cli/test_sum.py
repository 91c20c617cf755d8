"""`mmhash sum`: b3sum's lines, and one bad file does not stop the others."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from blake3 import blake3
from typer.testing import CliRunner, Result

import mmhash
from mmhash.cli.app import app
from mmhash.io import files as content_module


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["sum", *map(str, arguments)])


# Empty and small; a page; on and beside the edges of a slice.
@pytest.mark.parametrize("size", [0, 1, 4096, 1 << 16, (1 << 16) + 1, 3 << 16])
@pytest.mark.parametrize("threads", [[], ["--threads", "1"]])
def test_lines_are_those_of_b3sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, threads: list[str]
) -> None:
    monkeypatch.setattr(content_module, "SLICE", 1 << 16)
    data = bytes(i % 251 for i in range(size))
    file = tmp_path / "file"
    file.write_bytes(data)
    assert run(*threads, file).stdout == f"{blake3(data).hexdigest()}  {file}\n"
    expected = mmhash.digest(data, algorithm="xxh3").hex()
    assert run(*threads, "--algorithm", "xxh3", file).stdout == f"{expected}  {file}\n"


def test_a_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_bytes(b"foo")
    missing = tmp_path / "missing"
    done = run(missing, good, tmp_path, good)
    assert done.exit_code == 1
    assert done.stdout == f"{blake3(b'foo').hexdigest()}  {good}\n" * 2
    assert done.stderr == (
        f"mmhash: {missing}: No such file or directory\nmmhash: {tmp_path}: Is a directory\n"
    )


def test_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "file"
    monkeypatch.setattr(Path, "open", refuse)  # root may read all
    done = run(file)
    assert (done.exit_code, done.stderr) == (1, f"mmhash: {file}: Permission denied\n")


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="has no /proc")
def test_file_made_by_the_kernel() -> None:
    """Its size is said to be 0, and it cannot be mapped."""
    version = Path("/proc/version")
    assert run(version).stdout == f"{blake3(version.read_bytes()).hexdigest()}  {version}\n"


def test_named_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = b"foo" * 100_000
    with ThreadPoolExecutor() as pool:
        pool.submit(pipe.write_bytes, content)
        assert run(pipe).stdout == f"{blake3(content).hexdigest()}  {pipe}\n"


@pytest.mark.parametrize("option", ["--check", "-c"])
def test_the_option_of_b3sum_names_the_command(tmp_path: Path, option: str) -> None:
    done = run(option, tmp_path)
    assert done.exit_code == 2
    assert "sum files are read by `mmhash check`" in done.stderr
