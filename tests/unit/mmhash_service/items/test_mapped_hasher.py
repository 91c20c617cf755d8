"""The processes that map and hash shared memory, and what is left of them when one is killed."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import mmhash
from mmhash.transport import SharedTensor
from mmhash.transport.segments import open_segment
from mmhash_service.app import create_app
from mmhash_service.items.mapped_hasher import PROCESSES, HasherEndedError, MappedHasher
from mmhash_service.settings import Settings
from tests.support.in_process import running
from tests.support.processes import children_of
from tests.support.responses import items_of

CONTENT = bytes(range(256)) * 4096
_MODULE = b"mmhash_service.items.mapped_hasher"


def hashers() -> set[int]:
    """The running processes that this process has started."""
    found = set()
    for pid in children_of("self"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if _MODULE in Path(f"/proc/{pid}/cmdline").read_bytes():  # of a zombie it is empty
                found.add(pid)
    return found


@pytest.fixture
def hasher() -> Iterator[MappedHasher]:
    made = MappedHasher(30)
    yield made
    made.close()


@pytest.fixture
def file() -> Iterator[int]:
    with SharedTensor.create(CONTENT) as segment:
        opened, _ = open_segment(segment.handle()["name"], os.O_RDWR, len(CONTENT))
        yield opened
        os.close(opened)


def digests(hasher: MappedHasher, file: int) -> list[mmhash.Digest]:
    ranges = [(0, len(CONTENT)), (4096, 300_000)]
    return hasher.digests(file, ranges, "blake3", keep=False)


EXPECTED = [mmhash.cpu.hash_bytes(part, "blake3") for part in (CONTENT, CONTENT[4096:304_096])]


def test_ranges_of_a_file(hasher: MappedHasher, file: int) -> None:
    assert digests(hasher, file) == EXPECTED


def test_a_process_killed_while_idle_is_replaced(hasher: MappedHasher, file: int) -> None:
    before = hashers()
    for _ in range(PROCESSES + 1):
        assert digests(hasher, file) == EXPECTED
        (started,) = hashers() - before
        os.kill(started, signal.SIGKILL)
        os.waitid(os.P_PID, started, os.WEXITED | os.WNOWAIT)  # its last thread has ended


def test_an_item_whose_process_is_killed_is_hashed_by_another(proof: Any) -> None:
    with (
        running(create_app(Settings(shm=True))) as server,
        SharedTensor.create(CONTENT) as segment,
        ThreadPoolExecutor() as threads,
    ):
        body = {"items": [{"kind": "bytes", "shm": segment.handle()}], "proof": proof}
        before = hashers()
        items_of(server.client.post("/hash", json=body))
        (started,) = hashers() - before
        os.kill(started, signal.SIGSTOP)
        answer = threads.submit(server.client.post, "/hash", json=body)
        time.sleep(0.2)  # on a busy machine it may be killed before it is asked, which is as well
        os.kill(started, signal.SIGKILL)
        (item,) = items_of(answer.result())
    assert item["key"] == mmhash.key(CONTENT).hex()


def test_a_truncated_file_ends_a_process(
    hasher: MappedHasher, file: int, caplog: pytest.LogCaptureFixture
) -> None:
    os.truncate(file, 4096)
    with pytest.raises(HasherEndedError):
        digests(hasher, file)
    assert "ended with status 1" in caplog.text
    os.truncate(file, len(CONTENT))
    os.pwrite(file, CONTENT, 0)
    assert digests(hasher, file) == EXPECTED
