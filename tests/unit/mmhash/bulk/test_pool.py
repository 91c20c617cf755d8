"""Processes that hash shards: all of them are answered for, or the run says what died."""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mmhash
from mmhash.bulk.pool import Pool
from mmhash.bulk.work import SLICE, Options, Row, Shard, hash_files
from tests.support.service import command_line


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the workers import the functions of this module."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def one_row(options: Options, threads: int, number: int) -> list[Row]:
    """A shard that says how it was asked."""
    return [(number, options.algorithm, threads, os.getpid())]


def die(options: Options, threads: int) -> list[Row]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def fail(options: Options, threads: int) -> list[Row]:
    raise AssertionError


def worker_count() -> int:
    """Return the number of worker processes of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return sum(b"mmhash.bulk.worker" in command_line(int(pid)) for pid in children)


def shards_of(sizes: list[int]) -> dict[int, Shard]:
    return {
        10 + at: Shard(range(100), size, "", partial(one_row, number=10 + at))
        for at, size in enumerate(sizes)
    }


def hash_shards(shards: dict[int, Shard], options: Options, processes: int) -> Any:
    with Pool(processes) as pool:
        for number, shard, rows in pool.hash(iter(shards.items()), options):
            assert shard is shards[number]
            yield number, rows


def test_every_shard_is_answered_once() -> None:
    found = dict(hash_shards(shards_of([1] * 9), Options("xxh3"), 2))
    assert sorted(found) == list(range(10, 19))
    assert all(rows[0][:2] == (number, "xxh3") for number, rows in found.items())
    assert os.getpid() not in {rows[0][3] for rows in found.values()}


def test_large_files_are_hashed_by_threads_of_this_process() -> None:
    def shard(number: int, size: int) -> Shard:
        return Shard(range(1), size, "", partial(one_row, number=number))

    sizes = [SLICE, 1 << 20, (1 << 20) - 1, (1 << 30) + 1]
    shards = {number: shard(number, size) for number, size in enumerate(sizes * 2)}
    found = dict(hash_shards(shards, Options(), 2))
    here = {number % 4 for number, rows in found.items() if rows[0][3] == os.getpid()}
    assert sorted(found) == list(range(8))
    assert here == {0, 1}
    images = dict(hash_shards(shards, Options(of="pixels"), 2))
    assert os.getpid() not in {rows[0][3] for rows in images.values()}


def test_an_error_in_a_thread_ends_the_run() -> None:
    shards = {number: Shard(range(1), SLICE, "", fail) for number in range(4)}
    with pytest.raises(mmhash.MMHashError, match="worker thread failed: AssertionError"):
        list(hash_shards(shards, Options(), 2))


def test_nothing_to_do_is_done_at_once() -> None:
    assert list(hash_shards({}, Options(), 2)) == []


def test_large_ones_are_first_of_those_known_and_the_last_have_more_threads() -> None:
    answers = list(hash_shards(shards_of([1, SLICE + 1, 2, SLICE + 2]), Options(), 1))
    assert [number for number, _ in answers] == [11, 10, 13, 12]
    ((_, [row]),) = hash_shards(shards_of([SLICE]), Options(), 3)
    assert row[2] == 3
    first, second = (rows[0][2] for _, rows in hash_shards(shards_of([1, 1]), Options(), 4))
    assert {first, second} <= {2, 4}


def test_no_more_processes_start_than_there_are_shards() -> None:
    run = hash_shards(shards_of([1]), Options(), 4)
    assert next(run)[0] == 10
    assert worker_count() == 1
    run.close()


def test_a_worker_that_dies_is_an_error_and_no_worker_is_left(tmp_path: Path) -> None:
    shards = shards_of([1] * 4) | {3: Shard(range(1), 1, "", die)}
    with pytest.raises(mmhash.MMHashError, match=r"a worker exited \(status -9\)"):
        list(hash_shards(shards, Options(), 2))
    assert worker_count() == 0


def test_a_run_that_is_left_ends_its_workers_in_the_middle_of_a_file(tmp_path: Path) -> None:
    endless = tmp_path / "endless"
    with endless.open("wb") as file:
        file.truncate(1 << 40)
    shards = shards_of([1]) | {3: Shard(["endless"], 1, "", partial(hash_files, [str(endless)]))}
    run = hash_shards(shards, Options(), 2)
    assert next(run)[0] == 10
    assert worker_count() == 2
    start = time.monotonic()
    run.close()
    assert worker_count() == 0
    assert time.monotonic() - start < 60  # a TiB takes longer
