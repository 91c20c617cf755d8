"""`mmhash bulk`: whatever becomes of a run, in the end each item has one row, and the right one."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import mmhash
from mmhash.bulk.shards import SHARD_BYTES
from mmhash.cli.app import app
from mmhash.engines.registry import parse

pty = pytest.importorskip("pty")

FILES, KILLS = 3000, 5


def run(*arguments: object) -> Result:
    """Run it here, with one process for hashing unless the arguments name a number."""
    return CliRunner().invoke(app, ["bulk", "--processes", "1", *map(str, arguments)])


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "mmhash", "bulk", *map(str, arguments)]


def parts(out: Path) -> dict[str, tuple[bytes, int]]:
    """Return the content of each part, and the time of its last change."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:02}").write_bytes(b"%d" % number * 1000)
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """As many files as make three shards."""
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number:04}").write_bytes(b"%d" % number)
    return folder


def test_a_folder(folder: Path, out: Path) -> None:
    engines = ("--engine", "vllm", "--engine", "sglang@0.5.23")
    done = run(folder, "--out", out, *engines, "--processes", 2)
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{out}: 20 items\n", "")
    table = pq.read_table(out)
    assert table.column_names == [
        "path", "kind", "nbytes", "digest", "key", "@".join(parse("vllm")), "sglang@0.5.23", "error",
    ]  # fmt: skip
    assert table["path"].to_pylist() == [f"{folder}/{number:02}" for number in range(20)]
    for row in table.to_pylist():
        content = Path(row["path"]).read_bytes()
        assert row["digest"] == mmhash.digest(content).hex()
        assert row["key"] == mmhash.key(content).hex()
        assert row["nbytes"] == len(content)


def test_a_list_from_standard_input_with_a_file_that_is_missing(folder: Path, out: Path) -> None:
    lines = f"{folder}/03\n{folder}/none\n{folder}/01\n"
    done = subprocess.run(
        command("-", "--out", out, "--algorithm", "xxh3", "--processes", 1),
        input=lines, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, f"{out}: 3 items\n")
    assert done.stderr == "mmhash: WARNING: 1 item could not be hashed: see the column error\n"
    table = pq.read_table(out)
    assert table["path"].to_pylist() == lines.split()
    assert table["key"].to_pylist() == [
        mmhash.key(b"3" * 1000, algorithm="xxh3").hex(),
        None,
        mmhash.key(b"1" * 1000, algorithm="xxh3").hex(),
    ]
    assert table["error"][1].as_py() == "FileNotFoundError: No such file or directory"


@pytest.mark.parametrize(
    ("arguments", "differs"),
    [
        (("--algorithm", "xxh3"), "algorithm"),
        (("--of", "pixels"), "of"),
        (("--engine", "vllm"), "engines"),
        ((), "source"),
    ],
)
def test_the_folder_of_another_command_is_refused(
    folder: Path, out: Path, arguments: tuple[str, ...], differs: str
) -> None:
    run(folder, "--out", out)
    written = parts(out)
    if not arguments:
        folder = folder.rename(folder.with_name("other"))
    other = run(folder, "--out", out, *arguments)
    assert isinstance(other.exception, mmhash.InputError)  # main() makes a line of it
    assert f"another {differs}: " in str(other.exception)
    assert parts(out) == written


def test_a_changed_source_has_new_parts_where_it_changed(many: Path, out: Path) -> None:
    run(many, "--out", out)
    before = parts(out)
    (many / "1500").write_bytes(b"another")
    assert run(many, "--out", out).exit_code == 0
    after = parts(out)
    assert len(before.keys() - after.keys()) == len(after.keys() - before.keys()) == 1
    assert all(after[name] == before[name] for name in after.keys() & before.keys())
    table = pq.read_table(out)
    assert table["path"].to_pylist() == [f"{many}/{number:04}" for number in range(FILES)]
    assert table["key"][1500].as_py() == mmhash.key(b"another").hex()
    for number in range(1000, FILES):
        (many / f"{number:04}").unlink()
    assert run(many, "--out", out).stdout == f"{out}: 1000 items\n"
    assert pq.read_table(out).num_rows == 1000


@pytest.mark.parametrize("damage", [b"", b"PAR1", None])
def test_a_damaged_part_is_written_again(folder: Path, out: Path, damage: bytes | None) -> None:
    run(folder, "--out", out)
    (part,) = out.iterdir()
    content = part.read_bytes()
    part.write_bytes(content[:-20] if damage is None else damage)
    (out / part.name).with_suffix(".tmp").write_bytes(b"unfinished")
    done = run(folder, "--out", out)
    assert (done.exit_code, done.stdout) == (0, f"{out}: 20 items\n")
    assert parts(out).keys() == {part.name}
    assert part.read_bytes() == content


def test_a_run_that_cannot_start_says_why(folder: Path, out: Path) -> None:
    no_list, nowhere = out.with_name("list"), out.with_name("none") / "keys"
    no_list.write_bytes(b"a\0b")
    for arguments, why in (
        ([folder, "--out", folder / "keys"], "in the folder that is read"),
        ([no_list, "--out", folder], "has other files"),
        ([folder, "--out", nowhere], "No such file or directory"),
        ([folder, "--out", no_list], "File exists"),
        ([folder / "none", "--out", out], "none: No such file or directory"),
        (["", "--out", out], "'': No such file or directory"),  # not the working directory
        ([no_list, "--out", out], "not a list of paths"),
        ([folder, "--out", out, "--engine", "hal"], "no engine 'hal'"),
        ([folder, "--out", out, "--column", "x"], "do not give --column"),
    ):
        done = run(*arguments)
        assert isinstance(done.exception, (mmhash.InputError, OSError))
        assert why in str(done.exception)
        assert set(out.parent.iterdir()) == {folder, no_list}
        assert len(list(folder.iterdir())) == 20
    assert run(folder, "--out", out, "--processes", 0).exit_code == 2
    assert run(folder).exit_code == 2


def test_a_run_that_fails_kills_no_process_of_its_caller(tmp_path: Path, out: Path) -> None:
    no_list = tmp_path / "list"
    no_list.write_bytes(b"a\0b")
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    other.start()
    try:
        assert "not a list of paths" in str(run(no_list, "--out", out).exception)
        other.join(0.1)
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_at_work(many: Path, out: Path) -> None:
    with (many / "long").open("wb") as sparse:
        sparse.truncate(1 << 40)
    with subprocess.Popen(command(many, "--out", out), stdout=subprocess.DEVNULL) as process:
        while not running(many):
            assert process.poll() is None
        process.kill()
    until = time.monotonic() + 60
    while running(many):
        assert time.monotonic() < until
        time.sleep(0.01)


def running(folder: Path) -> bool:
    """Return True if a process has the long file of a folder open."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if descriptor.readlink() == folder / "long":
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("is_for_all", [True, False])
def test_ctrl_c_ends_it_and_what_is_finished_stays(many: Path, out: Path, is_for_all: bool) -> None:
    with (many / "long").open("wb") as sparse:  # one process is at it when the other has a shard
        sparse.truncate(1 << 40)
    with subprocess.Popen(
        command(many, "--out", out, "--processes", 2),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        while not list(out.glob("*.parquet")):
            assert process.poll() is None
        if is_for_all:  # as a terminal does
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        _, complaint = process.communicate()
        assert (process.returncode, complaint) == (130, b"")
    written = parts(out)
    # It still fills a shard, so that no finished shard gets other files.
    os.truncate(many / "long", SHARD_BYTES)
    subprocess.run(command(many, "--out", out), check=True, stdout=subprocess.DEVNULL)
    table = pq.read_table(out)
    assert table.num_rows == FILES + 1
    assert {name for name in written if name.endswith(".parquet")} <= parts(out).keys()


def test_two_runs_at_once_are_refused(many: Path, out: Path) -> None:
    with (many / "long").open("wb") as sparse:
        sparse.truncate(1 << 40)
    alone = command(many, "--out", out, "--processes", 1)
    with subprocess.Popen(alone, stdout=subprocess.DEVNULL) as process:
        while not list(out.glob("*.parquet")):
            assert process.poll() is None
        assert "in use by another run" in str(run(many, "--out", out).exception)
        process.kill()


def test_a_terminal_shows_a_bar_of_items_and_bytes(folder: Path, out: Path) -> None:
    read_end, write_end = pty.openpty()
    with subprocess.Popen(
        command(folder, "--out", out),
        stdout=subprocess.DEVNULL, stderr=write_end, env=os.environ | {"TERM": "xterm"},
    ) as process:  # fmt: skip
        os.close(write_end)
        said = b""
        with contextlib.suppress(OSError):  # a terminal whose other side is closed
            while some := os.read(read_end, 4096):
                said += some
        os.close(read_end)
        assert process.wait() == 0
    assert b"20/20 items" in said
    assert b"KiB" in said


def test_other_files_of_a_folder_are_skipped_and_counted(folder: Path, out: Path) -> None:
    Image.new("RGB", (8, 8), "navy").save(folder / "photo.png")
    for _ in range(2):  # the second run counts the parts of the first
        done = run(folder, "--out", out, "--of", "pixels")
        skipped = "20 other files skipped: not images"
        assert (done.exit_code, done.stdout) == (0, f"{out}: 1 item, {skipped}\n")
        (row,) = pq.read_table(out).to_pylist()
        assert row["key"] == mmhash.key_file(folder / "photo.png", of="pixels").hex()


def test_a_damaged_image_and_a_listed_file_still_fail(folder: Path, tmp_path: Path) -> None:
    image = folder / "photo.png"
    Image.effect_noise((64, 64), 50).save(image)
    image.write_bytes(image.read_bytes()[:200])
    assert run(folder, "--out", tmp_path / "one", "--of", "pixels").exit_code == 1
    listed = tmp_path / "list"
    listed.write_text(f"{folder / '00'}\n")
    assert run(listed, "--out", tmp_path / "two", "--of", "pixels").exit_code == 1


def test_nothing_is_imported_from_the_working_directory(folder: Path, out: Path) -> None:
    """Somebody else may have written there, such as in a folder of downloads."""
    (folder / "random.py").write_text("raise SystemExit('imported')")
    mmhash_script = Path(sys.executable).with_name("mmhash")
    done = subprocess.run(
        [mmhash_script, "bulk", ".", "--out", out], cwd=folder, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
