"""The attacker gives an AsyncHasher items whose reading raises anything, or ends its thread.

Every call completes with a named error, and the hasher goes on for this item and for others.
"""

import asyncio
import ctypes
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.executor import AsyncHasher

MIB = 1 << 20
SOON_S = 60


class OwnError(BaseException):
    pass


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class UnlikeError(mmhash.InputError):
    def __init__(self, *, size: int) -> None:
        super().__init__(f"unlike {size}")


RAISED = [
    KeyboardInterrupt(),
    SystemExit(3),
    GeneratorExit(),
    OwnError(),
    asyncio.CancelledError(),
    StopIteration(5),
    StopAsyncIteration(),
    BaseExceptionGroup("many", [KeyboardInterrupt(), ValueError()]),
    MemoryError(),
    RecursionError(),
    TimeoutError(),
    AttributeError("x"),
    UnspeakableError(),
    UnlikeError(size=1),
]
NAMED = (KeyboardInterrupt, SystemExit, GeneratorExit, OwnError, asyncio.CancelledError,
         StopIteration, StopAsyncIteration, BaseExceptionGroup)  # fmt: skip


class Broken:
    """Raises when it is read, as long as it has an error."""

    def __init__(self, error: BaseException, nbytes: int = 2 * MIB) -> None:
        self.nbytes = nbytes
        self.error: BaseException | None = error
        self.reads = 0

    def __mmhash_view__(self) -> Any:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return mmhash.view.view_of(b"mended")


def run(task: Any) -> Any:
    async def within() -> Any:
        return await asyncio.wait_for(task, SOON_S)

    return asyncio.run(within())


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("nbytes", [0, 2 * MIB])
def test_whatever_an_item_raises_its_call_completes(error: BaseException, nbytes: int) -> None:
    item, good = Broken(error, nbytes), np.ones(2 * MIB, np.uint8)

    async def main() -> None:
        async with AsyncHasher(threads=1) as one:
            for _ in range(2):
                found = await one.keys([good, item, good], return_errors=True)
                assert [found[0], found[2]] == mmhash.keys([good, good])
                assert isinstance(found[1], Exception)
                if isinstance(error, NAMED):
                    assert isinstance(found[1], mmhash.InputError)
                    assert type(error).__name__ in str(found[1])
                    assert found[1].__cause__ is error
                with pytest.raises(Exception):  # noqa: B017, PT011  (any but a BaseException)
                    await one.key(item)
            assert item.reads == 4
            item.error = None
            assert await one.key(item) == mmhash.key(b"mended")
            assert one.stats()[:4] == (0, 0, 0, 0)

    run(main())


def test_all_callers_of_a_broken_item_have_its_error() -> None:
    item = Broken(KeyboardInterrupt())

    async def main() -> None:
        async with AsyncHasher(threads=1) as one:
            calls = [one.key(item) for _ in range(20)]
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(error, mmhash.InputError) for error in found)

    run(main())


def test_nested_items_and_lists() -> None:
    async def main() -> None:
        async with AsyncHasher(threads=1) as one:
            for error in (SystemExit(), OwnError()):
                with pytest.raises(mmhash.InputError, match="item 0: reading the item raised"):
                    await one.keys([[np.ones(9), [Broken(error)]]])

    run(main())


class Weightless:
    """Raises when its weight is asked for, which happens on the event loop."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __mmhash_view__(self) -> Any:
        raise self.error

    @property
    def nbytes(self) -> int:
        raise self.error


@pytest.mark.parametrize("on_pressure", ["wait", "defer"])
@pytest.mark.parametrize("error", [ValueError(), OwnError(), GeneratorExit(), StopIteration(),
                                   asyncio.CancelledError()], ids=lambda e: type(e).__name__)  # fmt: skip
def test_an_item_that_cannot_be_weighed_has_an_error(
    error: BaseException, on_pressure: Any
) -> None:
    large = [np.full(MIB, turn, np.uint8) for turn in range(4)]

    async def main() -> None:
        async with AsyncHasher(threads=1, max_inflight_bytes=MIB, on_pressure=on_pressure) as one:
            others = asyncio.create_task(one.keys(large))
            await asyncio.sleep(0)
            (found,) = await one.keys([Weightless(error)], return_errors=True)
            assert isinstance(found, Exception)
            await others

    run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_on_the_loop_leaves_nothing_behind(error: type[BaseException]) -> None:
    """It may be the user's: it goes on, and what the call had begun is withdrawn."""
    good = np.ones(2 * MIB, np.uint8)

    async def main() -> None:
        async with AsyncHasher(threads=1) as one:
            with pytest.raises(error):
                await one.keys([good, Weightless(error())])
            assert await one.key(good) == mmhash.key(good)
            assert one.stats()[:4] == (0, 0, 0, 0)

    run(main())


@pytest.mark.parametrize("nbytes", [-(1 << 60), True, 1.5, "1", None, 1 << 70])
def test_a_lie_about_the_weight_changes_nothing_for_others(nbytes: Any) -> None:
    class Liar(Broken):
        pass

    item = Liar(ValueError())
    item.error, item.nbytes = None, nbytes

    async def main() -> None:
        async with AsyncHasher(threads=1, max_inflight_bytes=MIB) as one:
            assert await one.key(item) == mmhash.key(b"mended")
            assert one.stats()[:4] == (0, 0, 0, 0)

    run(main())


def test_a_thread_that_is_ended_from_outside() -> None:
    class Ends:
        nbytes = 2 * MIB

        def __mmhash_view__(self) -> Any:
            ident = ctypes.c_ulong(threading.get_ident())
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
            for _ in range(1000):
                pass
            return mmhash.view.view_of(b"x")

    async def main() -> None:
        async with AsyncHasher(threads=1) as one:
            for _ in range(3):
                with pytest.raises(mmhash.MMHashError):
                    await one.key(Ends())
            assert await one.key(np.ones(2 * MIB)) == mmhash.key(np.ones(2 * MIB))

    run(main())


def test_without_threads_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    good = np.ones(2 * MIB, np.uint8)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        async with AsyncHasher(threads=2) as one:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", start)
                with pytest.raises(mmhash.MMHashError, match="can't start new thread"):
                    await one.key(good)
            assert one.stats()[:4] == (0, 0, 0, 0)
            assert await one.key(good) == mmhash.key(good)

    run(main())


class Slow(Broken):
    """Raises only when it is allowed to finish."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.begun, self.finish = threading.Event(), threading.Event()

    def __mmhash_view__(self) -> Any:
        self.begun.set()
        self.finish.wait(SOON_S)
        return super().__mmhash_view__()


def test_a_caller_that_is_cancelled_while_its_item_raises() -> None:
    item = Slow(KeyboardInterrupt())

    async def main() -> None:
        async with AsyncHasher(threads=1) as one:
            call = asyncio.create_task(one.key(item))
            await asyncio.to_thread(item.begun.wait)
            for _ in range(3):
                call.cancel()
                await asyncio.sleep(0.01)
            item.finish.set()
            with pytest.raises(asyncio.CancelledError):
                await call
            item.error = None
            assert await one.key(item) == mmhash.key(b"mended")

    run(main())


def test_the_loop_is_closed_while_a_job_runs() -> None:
    one, item = AsyncHasher(threads=1), Slow(KeyboardInterrupt())
    loop = asyncio.new_event_loop()
    call = one.key(item)
    task = loop.create_task(call)
    while not item.begun.is_set():
        loop.run_until_complete(asyncio.sleep(0.01))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()

    async def close() -> None:
        closing = asyncio.create_task(one.close())
        await asyncio.sleep(0.05)
        assert not closing.done()  # the item is still read
        item.finish.set()
        await closing

    with pytest.raises(mmhash.MMHashError, match="another event loop"):
        asyncio.run(one.key(b"x"))
    asyncio.run(close())
    with pytest.raises(mmhash.MMHashError, match="closed"):
        asyncio.run(one.key(b"x"))


@pytest.mark.parametrize(
    "end", ["pass", "raise SystemExit(0)", "task.cancel()", "os.kill(os.getpid(), signal.SIGINT)"]
)
def test_the_interpreter_exits_while_jobs_are_in_flight(end: str) -> None:
    program = f"""
import asyncio, os, signal, numpy as np, mmhash
items = [np.full(8 << 20, turn, np.uint8) for turn in range(20)]
one = mmhash.AsyncHasher(threads=2)
async def main():
    task = asyncio.create_task(one.keys(items))
    await asyncio.sleep(0.005)
    {end}
try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SOON_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
