"""An accident instead of an attacker: after a fork, two processes use one connection or one pool.

Objects that would return wrong keys raise an error in the child. Hashing works there, without the
parent's threads.
"""

import asyncio
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash import AsyncClient, Client, Hasher, MMHashError, cpu
from mmhash.transport import SharedPool, SharedTensor
from mmhash.transport.segments import DIRECTORY

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

BIG = np.random.default_rng(7).integers(0, 256, (4 << 20) + 321, dtype=np.uint8)
CORES = cpu.cpu_count()


def check_in_child(check: Callable[[], Any]) -> None:
    """Call `check` in a forked child, which must end without an error, and soon."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            check()
            status = 0
        except BaseException:  # noqa: BLE001  (the parent sees only the status)
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_client_belongs_to_the_process_that_made_it(server: Any) -> None:
    url = str(server.client.base_url)
    with Client(url) as client:
        assert client.hash(BIG)[0].key == mmhash.key(BIG)

        def check() -> None:
            with pytest.raises(MMHashError, match="made before a fork"):
                client.hash(BIG)
            client.close()
            with Client(url) as own:
                assert own.hash(b"child")[0].key == mmhash.key(b"child")

        check_in_child(check)
        assert client.hash(BIG)[0].key == mmhash.key(BIG)


def test_an_async_client_belongs_to_the_process_that_made_it(server: Any) -> None:
    client = AsyncClient(str(server.client.base_url))

    async def call() -> None:
        assert (await client.hash(b"item"))[0].key == mmhash.key(b"item")

    def check() -> None:
        with pytest.raises(MMHashError, match="made before a fork"):
            asyncio.run(call())

    with asyncio.Runner() as runner:
        runner.run(call())
        check_in_child(check)
        runner.run(call())
        runner.run(client.aclose())


def test_a_pool_belongs_to_the_process_that_made_it() -> None:
    pool = SharedPool(1 << 20)
    handle = pool.lease(b"the parent's").handle()
    leased = SharedTensor.open(handle)

    def check() -> None:
        assert bytes(leased.view) == b"the parent's"
        with pytest.raises(MMHashError, match="made before a fork"):
            pool.lease(b"the child's")
        leased.close()
        pool.close()

    check_in_child(check)
    assert (DIRECTORY / handle["name"]).exists()
    assert bytes(SharedTensor.open(handle).view) == b"the parent's"
    pool.close()


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_a_child_hashes_although_its_parents_threads_are_lost(algorithm: str) -> None:
    threads = max(2, CORES)
    expected = mmhash.key(BIG, algorithm=algorithm, threads=threads)
    begun = Hasher(algorithm).update(BIG)

    def check() -> None:
        assert mmhash.key(BIG, algorithm=algorithm, threads=threads) == expected
        assert mmhash.keys([BIG, BIG], algorithm=algorithm) == [expected, expected]
        assert (
            begun.update(b"end").digest() == Hasher(algorithm).update(BIG).update(b"end").digest()
        )

    check_in_child(check)


def test_a_child_hashes_on_a_loop_of_its_own() -> None:
    async def call() -> None:
        async with mmhash.AsyncHasher() as hasher:
            assert await hasher.keys([BIG, b"short"]) == mmhash.keys([BIG, b"short"])

    asyncio.run(call())
    check_in_child(lambda: asyncio.run(call()))
