"""A forked child that leases its parent's slices gives one user's content another's key.

A child makes a pool of its own, and ends neither the parent's leases nor its segments.
"""

import gc
import multiprocessing
import os
import pickle
import secrets
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

import mmhash
from mmhash import InputTypeError, TransportError
from mmhash.transport import SharedPool, SharedTensor, segments
from mmhash.transport.segments import DIRECTORY
from tests.support.service import serving

# How many keys are asked for in all; FORKED_CALLS=10000 for the figure of docs/transport.md.
CALLS = int(os.environ.get("FORKED_CALLS", "320"))
CHILDREN = 4


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[str]:
    """The Unix socket of a service."""
    path = str(tmp_path / "socket")
    with serving("--uds", path):
        yield path


def in_child(act: Callable[[], object]) -> int:
    """Start a forked child that does `act`; its exit status is 0 if that is true."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(100)
            status = int(not act())
        except BaseException:  # noqa: BLE001  (the parent sees only the status)
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def ended_well(*children: int) -> bool:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * len(
        children
    )


def mine(pool: SharedPool) -> str:
    name: str = pool.lease(b"where").handle()["name"]
    return name


def hash_all(pool: SharedPool, path: str, calls: int) -> bool:
    """Return True if the service gives each of `count` random tensors its own key."""
    chance = np.random.default_rng(secrets.randbits(64))
    transport = httpx.HTTPTransport(uds=path, verify=False)
    with httpx.Client(base_url="http://localhost", timeout=60, transport=transport) as client:
        for _ in range(calls):
            values = chance.integers(0, 256, int(chance.integers(1, 40_000)), dtype=np.uint8)
            item = {"kind": "tensor", "shm": pool.lease(values).handle()}
            answer = client.post("/hash", json={"items": [item]})
            if answer.json()["items"][0]["key"] != mmhash.key(values).hex():
                return False
    return True


def test_children_and_parent_hash_at_once(socket: str) -> None:
    pool = SharedPool(1 << 20)
    pool.lease(b"before the fork")
    calls = CALLS // (CHILDREN + 1)
    children = [in_child(lambda: hash_all(pool, socket, calls)) for _ in range(CHILDREN)]
    assert hash_all(pool, socket, calls)
    assert ended_well(*children)
    pool.close()


def test_a_child_neither_writes_to_nor_ends_what_the_parent_leased() -> None:
    pool = SharedPool(64 << 10)
    handle = pool.lease(b"the parent's").handle()

    def act() -> bool:
        for _ in range(50):
            pool.lease(b"the child's!")
        other = mine(pool)
        pool.close()
        with pytest.raises(TransportError, match="the pool was closed"):
            pool.lease(b"x")
        gc.collect()
        return other != handle["name"] and not (DIRECTORY / other).exists()

    assert ended_well(in_child(act))
    assert bytes(SharedTensor.open(handle).view) == b"the parent's"
    assert mine(pool) == handle["name"]
    pool.close()


def test_a_grandchild_has_another_pool_again() -> None:
    pool = SharedPool(64 << 10)
    parents = mine(pool)

    def act() -> bool:
        child_leases = mine(pool)
        child = in_child(lambda: mine(pool) not in {parents, child_leases})
        return ended_well(child) and mine(pool) == child_leases != parents

    assert ended_well(in_child(act))
    assert mine(pool) == parents
    pool.close()


@pytest.mark.parametrize("closes", [False, True])
def test_a_child_that_exits_leaves_the_parents_segments(closes: bool) -> None:
    """By sys.exit(), which runs the finalizers that the child has from its parent."""
    pool = SharedPool(64 << 10)
    owned = SharedTensor.create(b"alone")
    names = [mine(pool), owned.handle()["name"]]
    program = multiprocessing.get_context("fork").Process(target=pool.close if closes else mine, args=() if closes else (pool,))  # fmt: skip
    before = {path.name for path in DIRECTORY.glob("mmhash-*")}
    program.start()
    program.join()
    assert program.exitcode == 0
    after = {path.name for path in DIRECTORY.glob(f"mmhash-{program.pid}-*")}
    assert all((DIRECTORY / name).exists() for name in names)
    assert after <= before  # and the child's own pool went with it
    pool.close()
    owned.close()


def test_locks_that_are_held_while_it_forks_do_not_stop_the_child() -> None:
    pool = SharedPool(64 << 10)
    opened = SharedTensor.open(pool.lease(b"content").handle())
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with pool._ledger._lock, segments.pool_mappings._lock, pool._replacing:
            held.set()
            release.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = in_child(lambda: bytes(opened.view) == b"content" and mine(pool))
    assert ended_well(child)
    release.set()
    thread.join()
    pool.close()


def test_a_child_does_not_keep_the_parents_segments_from_being_swept() -> None:
    """A lock on the file says that the owner lives: it must not be the child's too."""
    ready, done = os.pipe()

    def owner() -> bool:
        pool = SharedPool(64 << 10)
        name = mine(pool)
        if os.fork() == 0:
            os.write(done, name.encode())
            signal.alarm(100)
            signal.pause()
        os._exit(0)  # without any finalizer

    assert ended_well(in_child(owner))
    name = os.read(ready, 100).decode()
    assert not segments.has_owner(name)
    assert name in segments.remove_orphans() or not (DIRECTORY / name).exists()


def _pooled_key(data: bytes) -> tuple[str, str]:
    with SharedTensor.open(_POOLS[-1].lease(data).handle()) as feature:
        return str(mmhash.key(feature)), str(mmhash.key(data))


_POOLS: list[SharedPool] = []  # for the children of fork, which find it here


def test_a_pool_of_forked_workers() -> None:
    _POOLS.append(SharedPool(64 << 10))
    with multiprocessing.get_context("fork").Pool(4) as workers:
        for found, expected in workers.map(_pooled_key, [os.urandom(5000) for _ in range(200)]):
            assert found == expected
    _POOLS.pop().close()
    segments.remove_orphans()  # the workers were terminated, and left theirs


def test_by_forkserver_handles_travel_and_pools_do_not() -> None:
    context = multiprocessing.get_context("forkserver")
    with SharedTensor.create(b"abc") as owned, ProcessPoolExecutor(1, context) as workers:
        assert workers.submit(mmhash.key, owned).result() == mmhash.key(b"abc")
    pool = SharedPool(100)
    with pytest.raises(InputTypeError, match="handles"):
        pickle.dumps(pool)
    pool.close()


def test_what_terminated_children_leave_is_removed_by_the_next() -> None:
    pool = SharedPool(64 << 10)
    mine(pool)
    ready, done = os.pipe()

    def linger() -> bool:
        os.write(done, mine(pool).encode())
        signal.pause()
        return False

    child = in_child(linger)
    name = os.read(ready, 100).decode()
    # While its owner lives: afterwards any process, of another test too, may remove it.
    assert (DIRECTORY / name).exists()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert ended_well(in_child(lambda: mine(pool) and not Path(DIRECTORY / name).exists()))
    pool.close()
