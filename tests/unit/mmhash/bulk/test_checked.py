"""A file is its payload for one purpose, or it is damaged; nothing is followed or waited for."""

import os
from pathlib import Path

import pytest

from mmhash.bulk.checked import DamagedError, framed, read_checked, remove


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "part"
    write(path, b"payload")
    return path


def write(path: Path, payload: bytes, purpose: str = "here") -> None:
    path.write_bytes(b"".join(framed(payload, purpose)))


def test_what_was_written_is_read(path: Path) -> None:
    assert bytes(read_checked(path, "here")) == b"payload"
    write(path, b"")
    assert bytes(read_checked(path, "here")) == b""


def test_each_flipped_bit_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedError):
            read_checked(path, "here")


def test_each_other_length_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedError):
            read_checked(path, "here")
    path.write_bytes(content + b"\0")
    with pytest.raises(DamagedError, match=f"{len(content) + 1} bytes, not {len(content)}"):
        read_checked(path, "here")


def test_another_purpose_is_another_file(path: Path) -> None:
    with pytest.raises(DamagedError, match="of another run"):
        read_checked(path, "there")


def test_no_gigabytes_are_read_to_see_it(path: Path) -> None:
    os.truncate(path, 1 << 40)
    with pytest.raises(DamagedError, match="bytes, not"):
        read_checked(path, "here")


def test_no_link_is_followed_and_no_writer_waited_for(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for make in (lambda: other.symlink_to(path), other.mkdir, lambda: os.mkfifo(other)):
        make()
        with pytest.raises(DamagedError):
            read_checked(other, "here")
        remove(other)
        assert not other.exists()
    assert bytes(read_checked(path, "here")) == b"payload"
    with pytest.raises(FileNotFoundError):
        read_checked(other, "here")
    remove(other)  # which is gone already
