"""The folder of a supervisor's metrics: removed at the end, or by the next supervisor."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mmhash_service.server.metrics_folder import metrics_folder

HOLD = """
import sys
from mmhash_service.server.metrics_folder import hold
hold(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def old(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "counter_1.db").touch()
    os.utime(folder, (0, 0))
    return folder


def test_it_is_removed_at_the_end(folders: Path) -> None:
    with metrics_folder() as folder:
        assert Path(folder).parent == folders
        Path(folder, "counter_1.db").touch()
    assert not list(folders.iterdir())


def test_folders_that_nobody_uses_are_removed(folders: Path) -> None:
    orphans = [old(folders / f"mmhash-metrics-{number}") for number in range(3)]
    others = [old(folders / "mmhash-other"), old(folders / "other")]
    young = folders / "mmhash-metrics-young"
    young.mkdir()
    link = folders / "mmhash-metrics-link"
    link.symlink_to(others[0])
    file = folders / "mmhash-metrics-file"
    file.touch()
    os.utime(file, (0, 0))
    with metrics_folder() as folder:
        assert set(folders.iterdir()) == {Path(folder), *others, young, link, file}
    assert not any(orphan.exists() for orphan in orphans)
    assert (others[0] / "counter_1.db").exists()


def test_a_folder_that_is_in_use_is_kept(folders: Path) -> None:
    used = old(folders / "mmhash-metrics-used")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(used)], **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == b"held\n"
        for _ in range(2):
            with metrics_folder():
                assert (used / "counter_1.db").exists()
        process.stdin.close()
    with metrics_folder():
        assert not used.exists()
