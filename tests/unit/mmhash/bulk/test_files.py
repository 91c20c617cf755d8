"""Files opened ahead: each in its turn, and none left open."""

import os
from pathlib import Path

import pytest

import mmhash
from mmhash.bulk.files import AHEAD, File, open_files
from tests.support.descriptors import descriptors_below


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    found = []
    for number in range(3 * AHEAD):
        path = tmp_path / str(number)
        path.write_bytes(b"%d" % number)
        found.append(str(path))
    return found


def test_each_comes_in_its_turn(paths: list[str], tmp_path: Path) -> None:
    for number, file in enumerate(open_files(paths)):
        assert isinstance(file, File)
        assert descriptors_below(str(tmp_path)) <= AHEAD + 1
        assert os.read(file.descriptor, 100) == b"%d" % number
        assert file.size == len(str(number))
        os.close(file.descriptor)
    assert number == len(paths) - 1
    assert descriptors_below(str(tmp_path)) == 0


def test_what_cannot_be_opened_is_told_in_its_place(paths: list[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    bad = [str(tmp_path), str(tmp_path / "fifo"), "no\0name", "\udcff", str(tmp_path / "none")]
    found = list(open_files([paths[0], *bad, paths[1]]))
    assert [type(one) for one in found] == [
        File, mmhash.InputTypeError, mmhash.InputTypeError, ValueError, UnicodeEncodeError,
        FileNotFoundError, File,
    ]  # fmt: skip
    for file in found:
        if isinstance(file, File):
            os.close(file.descriptor)


def test_who_goes_away_leaves_none_open(paths: list[str], tmp_path: Path) -> None:
    files = open_files(paths)
    first = next(files)
    assert isinstance(first, File)
    os.close(first.descriptor)
    files.close()  # type: ignore[attr-defined]
    assert descriptors_below(str(tmp_path)) == 0
