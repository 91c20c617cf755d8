"""AsyncHasher: the answers of a plain loop, in order, bounded, with nothing left behind."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from PIL import Image

import mmhash
from mmhash import ClosedError, InputError, InputTypeError, InputValueError, MMHashError
from mmhash.executor import AsyncHasher, hasher, items
from mmhash.executor.jobs import read_items

T = TypeVar("T")
MIB = 1 << 20


def run(task: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(task)


def noise(nbytes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


class Gate:
    """Holds every reader until it is opened, and notes which items were read, and how."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.read: list[Any] = []
        self.threads: list[int] = []
        self.together: list[int] = []
        self.now = self.most = self.inline = 0
        lock = threading.Lock()

        def slow(parts: Any, options: Any, threads: int = 1, stream: Any = None) -> Any:
            with lock:
                self.read += parts
                self.together.append(len(parts))
                self.threads.append(threads)
                self.inline += threading.current_thread() is threading.main_thread()
                self.now += 1
                self.most = max(self.most, self.now)
            self.opened.wait(60)
            try:
                return read_items(parts, options, threads, stream)
            finally:
                with lock:
                    self.now -= 1

        monkeypatch.setattr(hasher, "read_items", slow)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what calls do in several turns of the event loop, or their threads."""
    while not condition():  # noqa: ASYNC110  (there is no event)
        await asyncio.sleep(0.001)


def idle(one: AsyncHasher) -> bool:
    return not any([one._running, one._waiting, one._in_flight, one._running_bytes])


def callers(one: AsyncHasher) -> int:
    return sum(job.callers for job in [*one._running, *one._waiting])


async def let_go(held: list[weakref.ref[Any]]) -> bool:
    """Return True if all are gone: the pool's thread releases its last call at its next turn."""
    for _ in range(1000):
        gc.collect()
        if all(each() is None for each in held):
            return True
        await asyncio.sleep(0.05)
    return False


def test_answers_are_those_of_a_plain_loop() -> None:
    large = noise(3 * MIB)
    items = [
        b"", b"small", bytearray(200_000), memoryview(bytes(200_000)), large, large[::2], large[10:],
        torch.ones(600, 600), torch.ones(600, 600).T, torch.ones(4).to(torch.bfloat16),
        [large, b"x", [torch.ones(3)]], [], Image.new("RGB", (300, 200)),
    ]  # fmt: skip

    async def main() -> None:
        async with AsyncHasher(threads=2) as one:
            for algorithm in ("blake3", "xxh3"):
                for tenant in (None, bytes(range(32))):
                    options = {"algorithm": algorithm, "tenant": tenant}
                    assert await one.keys(items, **options) == mmhash.keys(items, **options)
                    assert await one.key(large, **options) == mmhash.key(large, **options)
            assert await one.keys(iter([large])) == mmhash.keys([large])
            assert await one.keys([]) == []
            assert idle(one)

    run(main())


def test_small_items_need_no_thread(gate: Gate) -> None:
    gate.opened.set()

    async def main() -> None:
        async with AsyncHasher() as one:
            await one.keys([b"x"] * 10)
            assert gate.inline == 10
            await one.key(noise(2 * MIB))
            assert (gate.inline, len(gate.read)) == (10, 11)

    run(main())


@pytest.mark.parametrize("in_one_call", [True, False])
def test_many_small_items_let_others_have_their_turn(in_one_call: bool) -> None:
    async def main() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        items = [b"x" * 4096] * 5000
        async with AsyncHasher() as one:
            ticking = asyncio.create_task(others())
            if in_one_call:
                await one.keys(items)
            else:
                calls = [asyncio.ensure_future(one.key(item)) for item in items]
                await asyncio.sleep(0)
                turns = 0
                await asyncio.gather(*calls)
            ticking.cancel()
        assert turns > 10

    run(main())


# Errors


def test_the_first_error_names_its_item() -> None:
    items = [
        b"a",
        None,
        noise(2 * MIB),
        "text",
        torch.ones(300, 300).to_sparse(),
        Image.new("L", (9, 9)),
    ]

    async def main() -> None:
        async with AsyncHasher() as one:
            with pytest.raises(InputTypeError, match="item 1: None"):
                await one.keys(items)
            with pytest.raises(InputTypeError, match=r"^None has"):
                await one.key(None)
            assert idle(one)

    run(main())


def test_an_error_that_is_not_ours_has_a_note() -> None:
    class Handle:
        def __mmhash_view__(self) -> Any:
            raise RuntimeError("released")

    async def main() -> None:
        async with AsyncHasher() as one:
            with pytest.raises(RuntimeError, match="released") as caught:
                await one.keys([b"", Handle()])
            assert caught.value.__notes__ == ["item 1"]

    run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()])
def test_an_exception_of_an_item_ends_neither_the_loop_nor_the_thread(error: BaseException) -> None:
    class Handle:
        nbytes = 2 * MIB

        def __mmhash_view__(self) -> Any:
            raise error

    good = noise(2 * MIB)

    async def main() -> None:
        async with AsyncHasher(threads=1) as one:
            with pytest.raises(InputError, match="item 0: reading the item raised") as caught:
                await one.keys([Handle(), good])
            assert caught.value.__cause__ is error
            assert await one.key(good) == mmhash.key(good)

    run(main())


def test_a_call_that_is_wrong_itself_is_refused() -> None:
    async def main() -> None:
        async with AsyncHasher() as one:
            with pytest.raises(InputTypeError, match="list of items"):
                await one.keys(noise(9))
            with pytest.raises(InputValueError, match="'md5'"):
                await one.keys([b""], algorithm="md5")
            with pytest.raises(InputValueError, match="32 secret bytes"):
                await one.keys([b""], tenant=b"short")

    run(main())


@pytest.mark.parametrize("name", ["max_inflight_bytes", "threads"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_of_nothing_is_refused(name: str, value: int) -> None:
    with pytest.raises(InputValueError, match=f"{name} must be at least 1"):
        AsyncHasher(**{name: value})


# Closing


def test_after_close_there_is_a_clear_error() -> None:
    async def main() -> None:
        one = AsyncHasher()
        await one.close()
        await one.close()
        for call in (one.keys([b"x"]), one.key(b"x")):
            with pytest.raises(ClosedError, match="this AsyncHasher is closed"):
                await call

    run(main())


def test_close_lets_readers_end_and_fails_those_that_wait(gate: Gate) -> None:
    first, second = noise(2 * MIB, 1), noise(2 * MIB, 2)

    async def main() -> None:
        one = AsyncHasher(threads=1)
        calls = [asyncio.create_task(one.key(item)) for item in (first, second)]
        await until(lambda: len(one._running) == len(one._waiting) == 1)
        closing = asyncio.create_task(one.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        gate.opened.set()
        await closing
        assert await calls[0] == mmhash.key(first)
        with pytest.raises(ClosedError):
            await calls[1]
        assert idle(one)

    run(main())


def test_a_call_cut_short_by_close_comes_back_when_its_reader_has_stopped(gate: Gate) -> None:
    pixels = noise(MIB)
    items = [pixels[start:] for start in range(1000)]  # to start them takes several turns

    async def main() -> None:
        one = AsyncHasher(threads=1)
        call = asyncio.create_task(one.keys(items))
        closing = asyncio.create_task(one.close())
        await until(lambda: one._closed and gate.now == 1)
        await asyncio.sleep(0.01)
        came_back = call.done()
        gate.opened.set()
        with pytest.raises(ClosedError):
            await call
        await closing
        assert not came_back

    run(main())


def test_one_hasher_for_one_loop() -> None:
    one = AsyncHasher()
    run(one.key(b"x"))
    with pytest.raises(MMHashError, match="another event loop"):
        run(one.key(b"x"))
    run(one.close())


# Admission


def test_never_more_bytes_than_the_limit(gate: Gate) -> None:
    async def main() -> None:
        async with AsyncHasher(max_inflight_bytes=5 * MIB, threads=4) as one:
            calls = asyncio.gather(*(one.key(noise(2 * MIB, seed)) for seed in range(6)))
            await until(lambda: len(one._running) + len(one._waiting) == 6)
            assert len(one._running) == 2
            gate.opened.set()
            await calls
            assert gate.most == 2

    run(main())


def test_an_item_larger_than_the_limit_is_alone(gate: Gate) -> None:
    small, large = [noise(2 * MIB, seed) for seed in range(3)], noise(9 * MIB)

    async def main() -> None:
        async with AsyncHasher(max_inflight_bytes=5 * MIB, threads=4) as one:
            items = [small[0], large, *small[1:]]
            calls = asyncio.gather(*map(one.key, items))
            await until(lambda: len(one._running) + len(one._waiting) == 4)
            assert len(one._running) == 1  # nobody passes by the large one
            gate.opened.set()
            assert await calls == mmhash.keys(items)
            assert [len(item) for item in gate.read[:2]] == [2 * MIB, 9 * MIB]

    run(main())


def test_several_threads_for_a_large_item_alone(gate: Gate) -> None:
    gate.opened.set()
    items = [noise(9 * MIB, seed) for seed in range(3)]

    async def main() -> None:
        async with AsyncHasher(threads=2) as one:
            await one.key(items[0])
            assert gate.threads == [2]
            gate.opened.clear()  # the first is being read when the second begins
            keys = asyncio.ensure_future(one.keys(items))
            await until(lambda: len(gate.threads) == 3)
            threads = {id(item): count for item, count in zip(gate.read, gate.threads, strict=True)}
            assert threads == {id(items[0]): 2, id(items[1]): 1}
            gate.opened.set()
            await keys

    run(main())


@pytest.mark.parametrize("limit", [64 * MIB, 5 * MIB])
def test_the_items_of_a_call_on_one_gpu_are_one_job(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(
        hasher, "cost_of", lambda item: items.ItemCost(2 * MIB, device=item.size % 2)
    )
    monkeypatch.setattr(hasher, "stream_of", lambda _: None)
    gate.opened.set()
    arrays = [noise(2 * MIB + number % 2, number) for number in range(8)]
    bad = np.ma.masked_array(noise(2 * MIB))

    async def main() -> None:
        async with AsyncHasher(max_inflight_bytes=limit, threads=2) as one:
            # Side by side: the first job may have ended before the last item is started.
            found = await one.keys([arrays[0], *arrays])
            assert found == mmhash.keys([arrays[0], *arrays])
            together = gate.together.copy()
            with pytest.raises(InputTypeError, match="item 8"):
                await one.keys([*arrays, bad])
            assert idle(one)
        assert together == [2 if limit < 10 * MIB else 4] * (8 // together[0])

    run(main())


# The same at once


def test_the_same_buffer_at_once_is_read_once(gate: Gate) -> None:
    data = noise(2 * MIB)
    tensor = torch.from_numpy(data)
    items = [data, data[:], data.view(), tensor, tensor.view(-1)]

    async def main() -> None:
        async with AsyncHasher() as one:
            calls = asyncio.gather(one.keys(items), one.key(data))
            await until(lambda: callers(one) == 3)
            gate.opened.set()
            found, again = await calls
            assert set(found) == {again} == {mmhash.key(data)}
            assert len(gate.read) == 2
            await one.key(data)  # later it is read again: it may have changed
            assert len(gate.read) == 3

    run(main())


def test_views_of_one_buffer_are_not_confused(gate: Gate) -> None:
    data = noise(2 * MIB)
    complex_values = torch.from_numpy(data).view(torch.complex64)
    items = [data, data.view(np.uint16), data.reshape(2, -1), data[1:], data[::-1], data.reshape(2, -1).T,
             complex_values, complex_values.conj(), memoryview(data)]  # fmt: skip
    gate.opened.set()

    async def main() -> None:
        async with AsyncHasher() as one:
            assert await one.keys(items) == mmhash.keys(items)
            assert len(gate.read) == len(items)
            with pytest.raises(InputTypeError):
                await one.keys([data, np.ma.masked_array(data)])

    run(main())


# Cancellation


def test_a_cancelled_call_comes_back_when_its_reader_has_stopped(gate: Gate) -> None:
    data = noise(2 * MIB)

    async def main() -> None:
        async with AsyncHasher() as one:
            call = asyncio.create_task(one.key(data))
            await until(lambda: len(one._running) == 1)
            for _ in range(5):
                call.cancel()
                await asyncio.sleep(0.002)
                assert not call.done()
                assert one._running_bytes == len(data)
            gate.opened.set()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert idle(one)
            assert await one.key(data) == mmhash.key(data)

    run(main())


def test_a_waiting_call_is_cancelled_at_once(gate: Gate) -> None:
    async def main() -> None:
        async with AsyncHasher(threads=1) as one:
            first = asyncio.create_task(one.key(noise(2 * MIB, 1)))
            second = asyncio.create_task(one.key(noise(2 * MIB, 2)))
            await until(lambda: len(one._running) == len(one._waiting) == 1)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert not one._waiting
            gate.opened.set()
            await first
            assert len(gate.read) == 1

    run(main())


def test_cancelling_one_caller_does_not_cancel_the_others(gate: Gate) -> None:
    data = noise(2 * MIB)

    async def main() -> None:
        async with AsyncHasher() as one:
            first, second = (asyncio.create_task(one.key(data)) for _ in range(2))
            await until(lambda: callers(one) == 2)
            first.cancel()
            gate.opened.set()
            assert await second == mmhash.key(data)
            with pytest.raises(asyncio.CancelledError):
                await first

    run(main())


def test_buffers_are_released() -> None:
    held = []

    async def main() -> None:
        async with AsyncHasher() as one:
            for seed in range(4):
                data = noise(2 * MIB, seed)
                held.append(weakref.ref(data))
                call = asyncio.create_task(one.keys([data, data[::2], None]))
                del data
                if seed % 2:
                    await asyncio.sleep(0.001)
                    call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                del call
            assert await let_go(held)

    run(main())
