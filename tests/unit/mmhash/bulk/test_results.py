"""Finished shards: whole or not there, of one run, by one process at a time."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mmhash
from mmhash.bulk.results import Parts, count_results, open_parts
from mmhash.bulk.work import Options, Row

OPTIONS = Options()
ABOUT = {"source": "5", "algorithm": "blake3"}


def row(text: str) -> Row:
    return ("bytes", len(text), text, text, None)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "keys.parquet"


def begun(out: Path, about: dict[str, str] = ABOUT) -> set[int] | None:
    """Which shards a run finds finished."""
    with open_parts(out, "path", OPTIONS, about) as parts:
        return None if parts is None else parts.numbers()


def fill(out: Path) -> None:
    with open_parts(out, "path", OPTIONS, ABOUT) as parts:
        assert isinstance(parts, Parts)
        parts.keep(1, ["b", "c"], [row("B"), (None, None, None, None, "why")])
        parts.keep(0, ["a"], [row("A")])


def test_shards_are_joined_in_order(out: Path) -> None:
    fill(out)
    assert begun(out) == {0, 1}
    assert not out.exists()
    with open_parts(out, "path", OPTIONS, ABOUT) as parts:
        assert parts is not None
        parts.keep(2, [], [])
        parts.join(3)
    table = pq.read_table(out)
    assert table.column_names == ["path", "kind", "nbytes", "digest", "key", "error"]
    assert table["path"].to_pylist() == ["a", "b", "c"]
    assert table["key"].to_pylist() == ["A", "B", None]
    assert count_results(out) == (3, 1)
    assert os.listdir(out.parent) == [out.name]  # noqa: PTH208  (all that is there)
    assert begun(out) is None
    assert os.listdir(out.parent) == [out.name]  # noqa: PTH208


def test_what_was_not_whole_is_not_there(out: Path) -> None:
    fill(out)
    parts = out.with_name("keys.parquet.parts")
    (parts / "1.arrow").rename(parts / "1.tmp")
    (parts / "joined.tmp").write_bytes(b"half")
    assert begun(out) == {0}


def test_another_run_is_refused_until_its_results_are_gone(out: Path) -> None:
    fill(out)
    parts = out.with_name("keys.parquet.parts")
    with pytest.raises(mmhash.InputError, match=r"parts is of another run, with another source:"):
        begun(out, ABOUT | {"source": "6"})
    other = ABOUT | {"source": "6", "algorithm": "xxh3"}
    with pytest.raises(mmhash.InputError, match="another source and algorithm: run that again"):
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
    with open_parts(out, "path", OPTIONS, ABOUT) as parts:
        assert parts is not None
        parts.join(2)
    content = out.read_bytes()
    with pytest.raises(mmhash.InputError, match=r"keys.parquet is of another run"):
        begun(out, ABOUT | {"source": "6"})
    assert out.read_bytes() == content
    assert os.listdir(out.parent) == [out.name]  # noqa: PTH208  (nothing is left of the refused)


HOLD = """
import sys, time
from pathlib import Path
from mmhash.bulk.results import open_parts
from mmhash.bulk.work import Options
with open_parts(Path(sys.argv[1]), "path", Options(), {"source": "5", "algorithm": "blake3"}):
    print("held", flush=True)
    time.sleep(600)
"""


def test_one_run_at_a_time_and_the_lock_goes_with_the_process(out: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(out)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(mmhash.MMHashError, match="another run is at work"):
            begun(out)
        assert out.with_name("keys.parquet.parts").is_dir()
        holder.kill()
    assert begun(out) == set()
