"""`mmhash bulk`: whatever becomes of a run, in the end each item has one row, and the right one."""

import contextlib
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import mmhash
from mmhash.cli.app import app
from mmhash.engines.registry import parse

pty = pytest.importorskip("pty")

FILES, KILLS = 5000, 10


def run(*arguments: object) -> Result:
    """Run it here, with one process for hashing unless the arguments name a number."""
    return CliRunner().invoke(app, ["bulk", "--processes", "1", *map(str, arguments)])


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "mmhash", "bulk", *map(str, arguments)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:02}").write_bytes(b"%d" % number * 1000)
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "keys.parquet"


def test_a_folder(folder: Path, out: Path) -> None:
    engines = ("--engine", "vllm", "--engine", "sglang@0.5.23")
    done = run(folder, "--out", out, *engines, "--processes", 2)
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{out}: 20 items\n", "")
    table = pq.read_table(out)
    assert table.column_names == [
        "path", "kind", "nbytes", "digest", "key", "@".join(parse("vllm")), "sglang@0.5.23", "error",
    ]  # fmt: skip
    for row in table.to_pylist():
        content = Path(row["path"]).read_bytes()
        assert row["digest"] == mmhash.digest(content).hex()
        assert row["key"] == mmhash.key(content).hex()
        assert row["nbytes"] == len(content)


def test_an_unknown_release_is_refused_or_gets_the_recipe_of_an_older_one(
    folder: Path, out: Path
) -> None:
    refused = run(folder, "--out", out, "--engine", "vllm@99.0.0")
    assert isinstance(refused.exception, mmhash.InputError)
    fallback = ("--engine-fallback", "nearest-older")
    done = run(folder, "--out", out, "--engine", "vllm@99.0.0", *fallback)
    assert done.exit_code == 0, done.output
    assert "@".join(parse("vllm")) in pq.read_table(out).column_names
    key = CliRunner().invoke(app, ["key", str(folder / "00"), "--engine", "vllm@99.0.0", *fallback])
    assert key.exit_code == 0, key.output
    assert "vllm@99.0.0 {" in key.stdout


def test_one_item_is_one_item(folder: Path, out: Path) -> None:
    one = out.with_name("one")
    one.write_text(f"{folder}/00\n", encoding="utf-8")
    assert run(one, "--out", out).stdout == f"{out}: 1 item\n"


def test_a_list_from_standard_input_with_a_file_that_is_missing(folder: Path, out: Path) -> None:
    lines = f"{folder}/03\n{folder}/none\n{folder}/01\n"
    done = subprocess.run(
        command("-", "--out", out, "--algorithm", "xxh3", "--processes", 1),
        input=lines, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, f"{out}: 3 items\n")
    assert done.stderr == ("mmhash: WARNING: 1 of them could not be hashed: see the column error\n")
    table = pq.read_table(out)
    assert table["path"].to_pylist() == lines.split()
    assert table["key"].to_pylist() == [
        mmhash.key(b"3" * 1000, algorithm="xxh3").hex(),
        None,
        mmhash.key(b"1" * 1000, algorithm="xxh3").hex(),
    ]
    assert table["error"][1].as_py() == "FileNotFoundError: No such file or directory"


def test_run_again_it_has_nothing_to_do(folder: Path, out: Path) -> None:
    run(folder, "--out", out)
    content, changed = out.read_bytes(), out.stat().st_mtime_ns
    again = run(folder, "--out", out)
    assert (again.exit_code, again.stdout) == (0, f"{out}: 20 items\n")
    assert (out.read_bytes(), out.stat().st_mtime_ns) == (content, changed)
    other = run(folder, "--out", out, "--algorithm", "xxh3")
    assert isinstance(other.exception, mmhash.InputError)  # main() makes a line of it
    assert "another algorithm" in str(other.exception)


def test_what_is_no_file_is_the_same_in_the_next_run(folder: Path, out: Path) -> None:
    """The run itself changes the time of its folder."""
    listed = out.with_name("list")
    listed.write_text(f"{folder / '01'}\n{out.parent}\n")
    nulls = out.with_name("nulls.parquet")
    pq.write_table(pa.table({"path": [str(folder / "01"), None]}), nulls)
    for source, more in ((listed, []), (nulls, ["--column", "path"])):
        with contextlib.chdir(out.parent):  # an empty path is not this folder
            first = run(source, "--out", out, *more)
            content = out.read_bytes()
            again = run(source, "--out", out, *more)
        assert (again.exit_code, again.stdout) == (first.exit_code, first.stdout)
        assert (first.exit_code, out.read_bytes()) == (1, content)
        out.unlink()


def test_what_cannot_begin_says_why(folder: Path, out: Path) -> None:
    no_list, nowhere = out.with_name("list"), out.with_name("none") / "keys.parquet"
    no_list.write_bytes(b"a\0b")
    for arguments, why in (
        ([folder, "--out", folder / "keys.parquet"], "in the folder that is read"),
        ([folder, "--out", nowhere], f"{nowhere}: No such file or directory"),
        ([folder, "--out", folder], f"{folder}: a directory"),
        ([folder / "none", "--out", out], "none: No such file or directory"),
        (["", "--out", out], "'': No such file or directory"),  # not the working directory
        ([no_list, "--out", out], "not a list of paths"),
        ([folder, "--out", out, "--engine", "hal"], "no engine 'hal'"),
        ([folder, "--out", out, "--column", "x"], "do not give --column"),
    ):
        done = run(*arguments)
        assert isinstance(done.exception, mmhash.InputError)
        assert why in str(done.exception)
        assert set(out.parent.iterdir()) == {folder, no_list}
    assert run(folder, "--out", out, "--processes", 0).exit_code == 2
    assert run(folder).exit_code == 2


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """As many files as make five shards."""
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(FILES):
        (folder / str(number)).write_bytes(b"%d" % number)
    return folder


@pytest.mark.slow
def test_killed_at_random_it_still_has_each_item_once(many: Path, out: Path) -> None:
    whole = out.with_name("whole.parquet")
    start = time.monotonic()
    subprocess.run(command(many, "--out", whole), check=True, stdout=subprocess.DEVNULL)
    alone = time.monotonic() - start
    parts = out.with_name("keys.parquet.parts")
    finished: list[int] = []
    for _ in range(KILLS):
        with subprocess.Popen(command(many, "--out", out), stdout=subprocess.DEVNULL) as process:
            time.sleep(alone * random.uniform(0.2, 0.9))
            process.kill()
        finished.append(FILES if out.exists() else len(list(parts.glob("*.arrow"))))
    assert finished == sorted(finished)  # what was finished is not lost
    subprocess.run(command(many, "--out", out), check=True, stdout=subprocess.DEVNULL)
    assert out.read_bytes() == whole.read_bytes()
    assert not parts.exists()
    assert pq.read_table(out).num_rows == FILES


@pytest.mark.slow
def test_of_a_source_that_changed_the_rest_is_gone_on_with(many: Path, out: Path) -> None:
    _interrupted(many, out)
    first = min(path.name for path in many.iterdir())
    (many / first).write_bytes(b"another")
    subprocess.run(command(many, "--out", out), check=True, stdout=subprocess.DEVNULL)
    table = pq.read_table(out)
    assert table.num_rows == FILES + 1
    assert table["path"][0].as_py() == f"{many}/{first}"
    assert table["key"][0].as_py() == mmhash.key(b"another").hex()
    (many / first).write_bytes(b"once more")
    done = subprocess.run(command(many, "--out", out), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"mmhash: {out} is of another run, with another source: it is complete: give another --out"
    )


@pytest.mark.slow
def test_ctrl_c_ends_it_and_what_is_finished_stays(many: Path, out: Path) -> None:
    parts = _interrupted(many, out)
    assert list(parts.glob("*.arrow"))
    subprocess.run(command(many, "--out", out), check=True, stdout=subprocess.DEVNULL)
    assert pq.read_table(out).num_rows == FILES + 1


@pytest.mark.slow
def test_ctrl_c_while_the_workers_import_ends_it(many: Path, out: Path) -> None:
    with subprocess.Popen(
        command(many, "--out", out, "--processes", 2),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while len(children.read_text().split()) < 2:
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def _interrupted(many: Path, out: Path) -> Path:
    """A run's parts, which Ctrl-C ended once there were some."""
    parts = out.with_name("keys.parquet.parts")
    with (many / "long").open("wb") as sparse:  # one process is at it when the other has a shard
        sparse.truncate(1 << 40)
    with subprocess.Popen(
        command(many, "--out", out, "--processes", 2),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        while not list(parts.glob("*.arrow")):
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait() == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    os.truncate(many / "long", 1 << 20)
    return parts


def test_the_bar_counts_items_and_bytes_for_who_waits(folder: Path, out: Path) -> None:
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
    quiet = run(folder, "--out", out, "--quiet")
    assert quiet.stderr == ""


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_the_parquet_file_is_removed_when_its_export_is_on_the_disk(
    folder: Path, out: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    sync, unlink = os.fsync, Path.unlink

    def note_sync(descriptor: int) -> None:
        calls.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        sync(descriptor)

    def note_unlink(path: Path, missing_ok: bool = False) -> None:
        calls.append(f"unlink {path.name}")
        unlink(path, missing_ok)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "unlink", note_unlink)
    text = out.with_suffix(suffix)
    assert run(folder, "--out", text).exit_code == 0
    synced = calls.index(f"sync {text.name}.tmp")
    assert calls[synced:] == [
        f"sync {text.name}.tmp", f"sync {out.parent.name}", f"unlink {text.name}.parquet",
    ]  # fmt: skip


def test_the_suffix_chooses_the_format(folder: Path, out: Path) -> None:
    assert run(folder, "--out", out, "--engine", "vllm,sglang").exit_code == 0
    rows = pq.read_table(out).to_pylist()
    for suffix in (".jsonl", ".csv"):
        text = out.with_suffix(suffix)
        done = run(folder, "--out", text, "--engine", "vllm", "--engine", "sglang")
        assert (done.exit_code, done.stdout) == (0, f"{text}: 20 items\n")
        content = text.read_text()
        if suffix == ".jsonl":
            assert [json.loads(line) for line in content.splitlines()] == rows
        else:
            found = list(csv.DictReader(io.StringIO(content)))
            assert found == [
                {name: "" if value is None else str(value) for name, value in row.items()}
                for row in rows
            ]
        assert {path.suffix for path in out.parent.glob("keys.*")} <= {".parquet", ".jsonl", ".csv"}
        assert not text.with_name(text.name + ".parquet").exists()
        again = run(folder, "--out", text)
        assert again.exit_code == 1
        assert "exists: remove it" in str(again.exception)


@pytest.mark.parametrize("name", ["keys", "keys.txt", "keys.json", "keys.parquet.gz"])
def test_another_suffix_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    done = run(folder, "--out", tmp_path / name)
    assert done.exit_code == 1
    assert "ends with .parquet, .csv, .jsonl" in str(done.exception)
    assert not (tmp_path / name).exists()


def test_other_files_of_a_folder_are_skipped_and_counted(folder: Path, out: Path) -> None:
    Image.new("RGB", (8, 8), "navy").save(folder / "photo.png")
    for _ in range(2):  # the second run checks the result of the first
        done = run(folder, "--out", out, "--of", "pixels")
        skipped = "20 other files skipped: not images"
        assert (done.exit_code, done.stdout) == (0, f"{out}: 1 item, {skipped}\n")
        (row,) = pq.read_table(out).to_pylist()
        assert row["key"] == mmhash.key_file(folder / "photo.png", of="pixels").hex()


def test_a_damaged_image_and_a_listed_file_still_fail(folder: Path, tmp_path: Path) -> None:
    image = folder / "photo.png"
    Image.effect_noise((64, 64), 50).save(image)
    image.write_bytes(image.read_bytes()[:200])
    assert run(folder, "--out", tmp_path / "one.csv", "--of", "pixels").exit_code == 1
    listed = tmp_path / "list"
    listed.write_text(f"{folder / '00'}\n")
    assert run(listed, "--out", tmp_path / "two.csv", "--of", "pixels").exit_code == 1


def test_pandas_is_not_imported(folder: Path, out: Path) -> None:
    arguments = [str(folder), "--out", str(out)]
    code = f"""
import sys
from mmhash.cli import main
if __name__ == "__main__":
    sys.argv[1:] = ["bulk", *{arguments!r}]
    try:
        main()
    finally:
        assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
