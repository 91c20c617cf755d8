"""The attacker is an accident: a process forks, and both use what only one of them can have.

Parent and child share no connection, no shared memory and no lock; every key is right.
"""

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.client import AsyncClient, Client
from mmhash.executor import AsyncHasher, LazyKey
from tests.support.service import serving

MIB = 1 << 20
CALLS = int(os.environ.get("FORKED_CALLS", "200"))
DEADLINE_S = 120
BASE = "http://localhost"

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Unix socket of a service, which reads the clients' shared memory."""
    path = str(tmp_path_factory.mktemp("service") / "socket")
    with serving("--uds", path):
        yield path


def pool_of(client: Client) -> str:
    """The segment of its pool."""
    name: str = client._session._opened().lease(b"where").handle()["name"]
    return name


def forked(work: Callable[[], None]) -> int:
    """Do the work in a forked child; return its process id."""
    child = os.fork()
    if child:
        return child
    signal.alarm(DEADLINE_S)  # a child that hangs ends
    try:
        work()
    except BaseException:  # noqa: BLE001  (the child must not go on as the test)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def assert_done(*children: int) -> None:
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def content(number: int, *, long: bool = False) -> Any:
    size = MIB + 16 if long else 48
    return np.full(size, number % 251, np.uint8) + np.arange(size, dtype=np.uint8) // 7


def check(client: Client, numbers: range) -> None:
    for number in numbers:
        item = content(number, long=number % 8 == 0)
        assert client.hash(item)[0].key == mmhash.key(item), number


_client: Client


def _key_of(number: int) -> tuple[int, str]:
    return number, _client.hash(content(number, long=number % 16 == 0))[0].key.hex()


def test_a_pool_of_forked_processes_has_no_wrong_key(url: str) -> None:
    global _client
    with Client(BASE, uds=url) as _client:
        _key_of(0)  # the connection and the shared memory are there
        with multiprocessing.get_context("fork").Pool(4) as pool:
            keys = pool.map(_key_of, range(CALLS), chunksize=1)
        assert _key_of(1)[1] == mmhash.key(content(1)).hex()
    wrong = [
        number
        for number, key in keys
        if key != mmhash.key(content(number, long=number % 16 == 0)).hex()
    ]
    assert wrong == []


def test_parent_and_child_use_one_client_at_once(url: str) -> None:
    with Client(BASE, uds=url) as client:
        check(client, range(2))
        child = forked(lambda: check(client, range(100, 140)))
        check(client, range(40))
        assert_done(child)
        check(client, range(2))


def test_a_grandchild_has_connections_of_its_own(url: str) -> None:
    with Client(BASE, uds=url) as client:
        check(client, range(2))

        def work() -> None:
            check(client, range(10, 14))
            grandchild = forked(lambda: check(client, range(40, 60)))
            check(client, range(60, 80))
            assert_done(grandchild)

        child = forked(work)
        check(client, range(20))
        assert_done(child)


def test_a_fork_while_threads_are_in_calls(url: str) -> None:
    stop = threading.Event()

    def call(start: int) -> None:
        number = start
        while not stop.is_set():
            check(client, range(number, number + 1))
            number += 1

    with Client(BASE, uds=url) as client, ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(call, 1000 * turn) for turn in range(4)]
        try:
            for turn in range(10):
                assert_done(forked(partial(check, client, range(8 * turn, 8 * turn + 4))))
        finally:
            stop.set()
        for each in calls:
            each.result()


def test_a_fork_while_every_lock_is_held(url: str) -> None:
    with Client(BASE, uds=url) as client:
        check(client, range(2))
        with client._connections._lock, client._session._lock:
            child = forked(lambda: check(client, range(4)))
        assert_done(child)


def test_a_child_that_closes_leaves_the_parents_connections(url: str) -> None:
    with Client(BASE, uds=url) as client:
        check(client, range(1))
        number = client._connections._pool.connections[0]._connection._network_stream  # type: ignore[union-attr]
        before = number._socket.getsockname()
        name = pool_of(client)

        def work() -> None:
            client.close()
            with pytest.raises(mmhash.MMHashError, match="closed"):
                client.hash(b"x")

        for child in (work, lambda: None, lambda: check(client, range(2))):
            assert_done(forked(child))
            check(client, range(8))  # soon: the server closes connections that idle for 5 s
        after = client._connections._pool.connections[0]._connection._network_stream  # type: ignore[union-attr]
        assert after._socket.getsockname() == before  # the same connection, still open
        assert pool_of(client) == name


@pytest.mark.slow
def test_a_child_has_memory_of_its_own(url: str) -> None:
    with Client(BASE, uds=url) as client:
        check(client, range(1))
        name = pool_of(client)

        def work() -> None:
            check(client, range(1))
            assert pool_of(client) != name

        assert_done(forked(work))
        assert pool_of(client) == name


def test_an_async_client_in_parent_and_child(url: str) -> None:
    client = AsyncClient(BASE, uds=url)

    def run(calls: Any, start: int) -> None:
        asyncio.run(calls(start, 20))

    async def calls(start: int, count: int) -> None:
        for number in range(start, start + count):
            item = content(number, long=number % 8 == 0)
            assert (await client.hash(item))[0].key == mmhash.key(item)

    async def main() -> None:
        await calls(0, 2)
        children = [forked(partial(run, calls, start)) for start in (100, 200)]
        await asyncio.gather(*(calls(20 * turn, 20) for turn in range(4)))
        for child in children:
            await asyncio.to_thread(assert_done, child)
        await calls(0, 2)
        await client.close()

    asyncio.run(main())


@pytest.mark.slow
def test_a_fork_while_an_async_call_waits(url: str) -> None:
    """The child's end must not end the parent's lease, or close the parent's connection."""
    client = AsyncClient(BASE, uds=url)
    long = content(8, long=True)

    async def main() -> None:
        await client.hash(long)
        for turn in range(10):
            call = asyncio.create_task(client.hash([long, content(turn, long=True)]))
            await asyncio.sleep(turn / 1000)
            child = os.fork()
            if child == 0:
                del call
                gc.collect()
                os._exit(0)
            found = await call
            assert [item.key for item in found] == mmhash.keys([long, content(turn, long=True)])
            await asyncio.to_thread(assert_done, child)
        await client.close()

    asyncio.run(main())


def test_a_hasher_made_before_the_fork_hashes_in_both(tmp_path: Any) -> None:
    small, large = noise(1, 1000), noise(2, 2 * MIB)
    one = AsyncHasher(threads=2)

    async def calls(count: int) -> None:
        for _ in range(count):
            assert await one.keys([small, large]) == mmhash.keys([small, large])

    async def main() -> None:
        await calls(3)
        child = forked(lambda: asyncio.run(calls(20)))
        await calls(20)
        await asyncio.to_thread(assert_done, child)
        await one.close()

    asyncio.run(main())


def noise(seed: int, nbytes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def test_a_hasher_forked_while_its_threads_work_hashes_the_same_item_in_the_child() -> None:
    begun, finish = threading.Event(), threading.Event()

    class Slow:
        nbytes = 2 * MIB

        def __mmhash_view__(self) -> Any:
            begun.set()
            finish.wait(DEADLINE_S)
            return mmhash.view.view_of(b"slow")

    item = Slow()

    async def main() -> None:
        async with AsyncHasher(threads=1) as one:
            call = asyncio.create_task(one.key(item))
            await asyncio.to_thread(begun.wait)

            def work() -> None:
                finish.set()  # the child's own copy
                assert asyncio.run(one.key(item)) == mmhash.key(b"slow")
                asyncio.run(one.close())

            child = forked(work)
            await asyncio.to_thread(assert_done, child)
            finish.set()
            assert await call == mmhash.key(b"slow")

    asyncio.run(main())


def test_a_closed_hasher_is_closed_in_the_child() -> None:
    one = AsyncHasher()
    asyncio.run(one.close())

    def work() -> None:
        with pytest.raises(mmhash.MMHashError, match="closed"):
            asyncio.run(one.key(b"x"))

    assert_done(forked(work))


def test_a_lazy_key_that_a_thread_computes_at_the_fork() -> None:
    begun, finish = threading.Event(), threading.Event()

    def compute() -> mmhash.Digest:
        begun.set()
        finish.wait(DEADLINE_S)
        return mmhash.key(b"x")

    lazy = LazyKey(compute)
    thread = threading.Thread(target=lambda: lazy.bytes)
    thread.start()
    begun.wait()

    def work() -> None:
        finish.set()
        assert lazy == mmhash.key(b"x")

    child = forked(work)
    assert_done(child)
    finish.set()
    thread.join()
    assert lazy == mmhash.key(b"x")


@pytest.mark.slow
def test_forks_are_quick_whatever_a_client_has(url: str) -> None:
    with Client(BASE, uds=url) as client:
        check(client, range(2))
        start = time.monotonic()
        for _ in range(20):
            assert_done(forked(lambda: None))
        assert time.monotonic() - start < DEADLINE_S
