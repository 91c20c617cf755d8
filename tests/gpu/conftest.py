"""Tests that measure the memory of a whole GPU run while no other test of `pytest -n` does."""

import fcntl
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Share the GPUs with other tests, or with none if the test is marked `alone`."""
    with (Path(tempfile.gettempdir()) / "mmhash-tests-gpu.lock").open("w") as file:
        alone = item.get_closest_marker("alone")
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        return (yield)
