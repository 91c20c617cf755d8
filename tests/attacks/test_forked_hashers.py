"""Hashing in a forked child: it hangs on threads and locks that stayed in the parent.

A forked child hashes on its own thread, and begins with new pools and locks.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash import Hasher, InputValueError, cpu, states

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

BIG = np.random.default_rng(7).integers(0, 256, (4 << 20) + 321, dtype=np.uint8)
CORES = cpu.cpu_count()


def in_child(check: Callable[[], bool]) -> int:
    """Return the exit status of a forked child: 0 if `check` held, and it did not hang."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1]


@pytest.fixture(autouse=True)
def warm() -> None:
    """The parent has used all of its pools."""
    for algorithm in ("blake3", "xxh3"):
        mmhash.digest(BIG, algorithm=algorithm, threads=max(2, CORES))


@pytest.mark.parametrize("threads", [1, CORES, CORES + 1, 4 * CORES])
@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_a_hasher_that_the_parent_made(algorithm: str, threads: int) -> None:
    hasher = Hasher(algorithm, threads=threads).update(BIG)
    expected = [
        Hasher(algorithm).update(BIG).update(piece).digest() for piece in (b"end", BIG, BIG[1:700])
    ]

    def check() -> bool:
        pieces = (b"end", BIG, BIG[1:700])
        return hasher.digest() == Hasher(algorithm).update(BIG).digest() and expected == [
            hasher.copy().update(piece).digest() for piece in pieces
        ]

    assert in_child(check) == 0
    assert hasher.copy().update(BIG).digest() == expected[1]


def test_a_hasher_with_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "cpu_count", lambda: 8)
    monkeypatch.setattr(states, "cpu_count", lambda: 8)
    hasher = Hasher(threads=3).update(BIG)

    def check() -> bool:
        with pytest.raises(InputValueError, match="after a fork"):
            hasher.copy().update(b"more")
        return hasher.digest() == mmhash.digest(BIG, threads=1).bytes

    assert in_child(check) == 0


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_what_a_child_begins(algorithm: str) -> None:
    items = [BIG, BIG[:100], [BIG[:7], BIG[9:]]]
    expected = mmhash.keys(items, algorithm=algorithm)

    def check() -> bool:
        made = Hasher(algorithm, threads=2 * CORES).update(BIG).digest()
        return (
            mmhash.keys(items, algorithm=algorithm, threads=2 * CORES) == expected
            and mmhash.key(BIG, algorithm=algorithm) == expected[0]
            and made == mmhash.digest(BIG, algorithm=algorithm, threads=3).bytes
            and in_child(lambda: mmhash.keys(items, algorithm=algorithm) == expected) == 0
        )

    assert in_child(check) == 0


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_forks_while_other_threads_hash(algorithm: str) -> None:
    expected = mmhash.key(BIG, algorithm=algorithm)
    done = threading.Event()
    wrong: list[Any] = []

    def hash_on() -> None:
        while not done.is_set():
            if mmhash.key(BIG, algorithm=algorithm, threads=2 * CORES) != expected:
                wrong.append(None)

    threads = [threading.Thread(target=hash_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert in_child(lambda: mmhash.key(BIG, algorithm=algorithm) == expected) == 0
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_fork_in_a_thread() -> None:
    expected = mmhash.key(BIG)
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(in_child(lambda: mmhash.key(BIG, threads=CORES) == expected))
    )
    thread.start()
    thread.join()
    assert found == [0]


def _key(number: int) -> str:
    return mmhash.key(BIG[number:], threads=2 * CORES).hex()


def test_a_pool_of_forked_processes() -> None:
    expected = [mmhash.key(BIG[number:]).hex() for number in range(40)]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map_async(_key, range(40)).get(timeout=120) == expected
