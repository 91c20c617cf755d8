"""Segments exist whole or not at all, open by name, and are swept when their owner is dead."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from mmhash import TransportError
from mmhash.cli.app import app
from mmhash.transport import remove_orphans, segments
from mmhash.transport.segments import Segment, map_private
from tests.support.descriptors import descriptors_below

RANDOM = "00112233aabbccdd"
OWNER = """
import sys
from pathlib import Path
from mmhash.transport import SharedTensor, segments
segments.DIRECTORY = Path(sys.argv[1])
owned = SharedTensor.create(b"left behind")
print(owned.handle()["name"], flush=True)
input()
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Shared memory of this test only: other processes sweep that of all."""
    with TemporaryDirectory(dir=segments.DIRECTORY, prefix="mmhash-test-") as name:
        monkeypatch.setattr(segments, "DIRECTORY", Path(name))
        yield Path(name)


def ours(folder: Path) -> set[str]:
    return {path.name for path in folder.glob(f"mmhash-{os.getpid()}-*")}


@pytest.fixture
def orphan(folder: Path) -> str:
    """A segment whose owner was killed."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with owner:
        name = owner.stdout.readline().strip()
        assert name not in remove_orphans()  # its owner runs
        owner.kill()
    return name


def test_bytes_are_seen_at_any_offset() -> None:
    segment = Segment(10_000)
    content = bytes(i % 251 for i in range(10_000))
    segment.fill(memoryview(content))
    for offset, nbytes in [(0, 10_000), (1, 9_999), (4096, 0), (5000, 5000), (4095, 2)]:
        assert map_private(segment.name, offset, nbytes) == content[offset : offset + nbytes]
    segment.close()


def test_a_segment_is_private_to_its_user(folder: Path) -> None:
    segment = Segment(1)
    assert (folder / segment.name).stat().st_mode & 0o777 == 0o600
    segment.close()


def test_closing_twice_and_forgetting_remove_it(folder: Path) -> None:
    segment = Segment(5)
    segment.close()
    segment.close()
    Segment(5)
    assert ours(folder) == set()
    assert descriptors_below(str(folder)) == 0


def test_no_room_is_an_error_and_leaves_nothing(folder: Path) -> None:
    with pytest.raises(TransportError, match="no room for"):
        Segment(1 << 60)
    assert ours(folder) == set()


def test_a_segment_that_is_gone_or_too_short_is_refused(folder: Path) -> None:
    name = f"mmhash-1-{RANDOM}"
    with pytest.raises(TransportError, match="is gone"):
        map_private(name, 0, 100)
    (folder / name).write_bytes(b"abc")
    with pytest.raises(TransportError, match="has 3 bytes, and its handle needs 100"):
        map_private(name, 0, 100)
    assert descriptors_below(str(folder)) == 0


def test_sweep_removes_an_orphan_once(folder: Path, orphan: str) -> None:
    mine = Segment(1)
    assert remove_orphans() == [orphan]
    assert ours(folder) == {mine.name}
    assert remove_orphans() == []
    mine.close()


def test_the_command_sweeps(folder: Path, orphan: str) -> None:
    done = CliRunner().invoke(app, ["env", "--sweep"])
    assert done.exit_code == 0
    assert f"removed {orphan}\n" in done.stdout
    assert list(folder.iterdir()) == []
