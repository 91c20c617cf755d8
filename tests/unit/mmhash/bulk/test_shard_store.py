"""Finished shards: whole or not there, of one run, by one process at a time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mmhash
from mmhash.bulk.shard_store import open_shard_store
from mmhash.bulk.tables import JOINED, count_results
from mmhash.bulk.work import Options, Row, Shard

OPTIONS = Options()
ABOUT = {"algorithm": "blake3", "of": "bytes"}
IDENTITIES = ["00", "11", "22"]


def row(text: str) -> Row:
    return ("bytes", len(text), text, text, None)


def shard(number: int, names: list[str]) -> Shard:
    return Shard(names, 0, IDENTITIES[number], never)


def never(options: Options, threads: int) -> list[Row]:
    raise AssertionError


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "keys.parquet"


def begun(out: Path, about: dict[str, str] = ABOUT) -> set[int]:
    """Return the shards that a run finds finished."""
    with open_shard_store(out, "path", OPTIONS, about) as parts:
        return {number for number, one in enumerate(IDENTITIES) if parts.have(number, one)}


def fill(out: Path) -> None:
    with open_shard_store(out, "path", OPTIONS, ABOUT) as parts:
        parts.keep(1, shard(1, ["b", "c"]), [row("B"), (None, None, None, None, "why")])
        parts.keep(0, shard(0, ["a"]), [row("A")])


def join(out: Path) -> None:
    with open_shard_store(out, "path", OPTIONS, ABOUT) as parts:
        parts.keep(2, shard(2, []), [])
        parts.join(IDENTITIES)


def test_shards_are_joined_in_order(out: Path) -> None:
    fill(out)
    assert begun(out) == {0, 1}
    assert not out.exists()
    join(out)
    table = pq.read_table(out)
    assert table.column_names == ["path", "kind", "nbytes", "digest", "key", "error"]
    assert table["path"].to_pylist() == ["a", "b", "c"]
    assert table["key"].to_pylist() == ["A", "B", None]
    assert count_results(out) == (3, 1)
    assert os.listdir(out.parent) == [out.name]  # noqa: PTH208  (all that is there)


def test_only_a_run_with_a_finished_shard_leaves_anything(out: Path) -> None:
    parts = out.with_name("keys.parquet.parts")
    with open_shard_store(out, "path", OPTIONS, ABOUT):
        (parts / "0-00.tmp").write_bytes(b"half")  # the disk is full
    assert not parts.exists()
    with open_shard_store(out, "path", OPTIONS, ABOUT):
        shutil.rmtree(parts)  # finished: another run may begin at once
        parts.mkdir()
        (parts / "manifest.json").touch()
    assert os.listdir(parts) == ["manifest.json"]  # noqa: PTH208
    shutil.rmtree(parts)
    fill(out)
    with pytest.raises(mmhash.InputError):  # refused: it leaves those of the other run
        begun(out, ABOUT | {"of": "pixels"})
    assert len(list(parts.iterdir())) == 3
    assert begun(out) == {0, 1}
    for part in parts.glob("*.arrow"):  # a run that was killed before it had finished any
        part.unlink()
    assert begun(out, ABOUT | {"of": "pixels"}) == set()
    assert not parts.exists()


def test_more_shards_than_are_joined_at_once(out: Path) -> None:
    count = JOINED + 1
    with open_shard_store(out, "path", OPTIONS, ABOUT) as parts:
        for number in range(count):
            parts.keep(number, Shard([str(number)], 0, "00", never), [row("A")])
        parts.join(["00"] * count)
    assert pq.read_table(out)["path"].to_pylist() == list(map(str, range(count)))


def test_what_was_not_whole_is_not_there(out: Path) -> None:
    fill(out)
    parts = out.with_name("keys.parquet.parts")
    (kept,) = parts.glob("1-*.arrow")
    kept.rename(kept.with_suffix(".tmp"))
    (parts / "joined.tmp").write_bytes(b"half")
    assert begun(out) == {0}


def test_of_a_shard_that_has_changed_nothing_is_finished(out: Path) -> None:
    fill(out)
    with open_shard_store(out, "path", OPTIONS, ABOUT) as parts:
        assert parts.have(1, "11")
        assert not parts.have(1, "12")
        parts.keep(1, Shard(["d"], 0, "12", never), [row("D")])
        parts.join(["00", "12"])
    assert pq.read_table(out)["path"].to_pylist() == ["a", "d"]
    assert os.listdir(out.parent) == [out.name]  # noqa: PTH208  (the old one went too)


def test_another_run_is_refused_until_its_results_are_gone(out: Path) -> None:
    fill(out)
    parts = out.with_name("keys.parquet.parts")
    with pytest.raises(mmhash.InputError, match=r"parts is of another run, with another of:"):
        begun(out, ABOUT | {"of": "pixels"})
    other = ABOUT | {"of": "pixels", "algorithm": "xxh3"}
    with pytest.raises(mmhash.InputError, match="another algorithm and of: run that command again"):
        begun(out, other)
    assert begun(out) == {0, 1}
    (parts / "manifest.json").unlink()  # as one that was killed while it removed them
    assert begun(out, other) == set()


def test_a_result_is_never_overwritten(out: Path) -> None:
    out.write_bytes(b"a letter")
    with pytest.raises(mmhash.InputError, match="no result of bulk"):
        begun(out)
    out.unlink()
    fill(out)
    join(out)
    content = out.read_bytes()
    with pytest.raises(mmhash.InputError, match="with another of: it is complete: give another"):
        begun(out, ABOUT | {"of": "pixels", "skips_others": "True"})
    with open_shard_store(out, "path", OPTIONS, ABOUT) as parts:
        assert parts.result is not None
        with pytest.raises(mmhash.InputError, match="with another source"):
            parts.check_result(IDENTITIES[:2])
        parts.check_result(IDENTITIES)
    assert out.read_bytes() == content
    assert os.listdir(out.parent) == [out.name]  # noqa: PTH208  (nothing is left of the refused)


HOLD = """
import sys, time
from pathlib import Path
from mmhash.bulk.shard_store import open_shard_store
from mmhash.bulk.work import Options
with open_shard_store(Path(sys.argv[1]), "path", Options(), {"algorithm": "blake3", "of": "bytes"}):
    print("held", flush=True)
    time.sleep(600)
"""


def test_one_run_at_a_time_and_the_lock_goes_with_the_process(out: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(out)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(mmhash.MMHashError, match="in use by another run"):
            begun(out)
        assert out.with_name("keys.parquet.parts").is_dir()
        holder.kill()
    assert begun(out) == set()
