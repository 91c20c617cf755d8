"""Processes that hash shards: as many as cores, each with one shard at a time and one ahead.

A worker is spawned, asked and answered through a pipe of its own, so that one which dies in the
middle of an answer is noticed; a ProcessPoolExecutor would wait for the rest of it for ever.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from mmhash.bulk.work import SLICE, Options, Row, Shard
from mmhash.errors import MMHashError

_Task = tuple[Callable[[Options, int], list[Row]], Options, int]

# What a worker has to do while its last answer is kept, which waits for the disk.
_AHEAD = 2


class Pool:
    """Workers, which take 0.1 s to start: begin it before what they shall hash is looked up."""

    def __init__(self, processes: int) -> None:
        self._workers = [_Worker() for _ in range(processes)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.end()

    def hash(
        self, shards: Iterator[tuple[int, Shard]], options: Options
    ) -> Iterator[tuple[int, Shard, list[Row]]]:
        """The rows of numbered shards, in the order in which they are done.

        Meanwhile more shards are looked up. Of those that are known large ones are first, or all
        would wait for one of them in the end; the rest as they come.
        """
        waiting: list[tuple[int, int, Shard]] = []
        answers: list[tuple[int, Shard, list[Row]]] = []
        are_all_known = False
        while not are_all_known or waiting or self._asked:
            if (found := next(shards, None)) is not None:
                number, shard = found
                heappush(waiting, (-max(shard.nbytes, SLICE), number, shard))
            else:
                are_all_known = True
            if are_all_known or len(waiting) > len(self._workers):
                self._ask(waiting, options)
            yield from answers  # the workers are busy while these are kept
            answers = self._answers(None if are_all_known else 0)
        yield from answers

    @property
    def _asked(self) -> int:
        return sum(len(worker.asked) for worker in self._workers)

    def _ask(self, waiting: list[tuple[int, int, Shard]], options: Options) -> None:
        """Give each worker what it may have."""
        for depth in range(_AHEAD):
            for worker in self._workers:
                if waiting and len(worker.asked) <= depth:
                    # More threads than one where there are fewer shards than workers.
                    threads = max(1, len(self._workers) // (len(waiting) + self._asked))
                    _, number, shard = heappop(waiting)
                    worker.ask(number, shard, options, threads)

    def _answers(self, timeout: float | None) -> list[tuple[int, Shard, list[Row]]]:
        """What has been done; at least something, if nobody is in a hurry."""
        busy = {worker.pipe: worker for worker in self._workers if worker.asked}
        return [
            busy[pipe].answer()
            for pipe in wait(busy, timeout if busy else 0)
            if isinstance(pipe, Connection)
        ]


class _Worker:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.asked: deque[tuple[int, Shard]] = deque()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()  # the last end of its side is the worker's: when that dies, the pipe ends

    def ask(self, number: int, shard: Shard, options: Options, threads: int) -> None:
        try:
            self.pipe.send((shard.hash, options, threads))
        except OSError as error:
            raise self._death() from error
        self.asked.append((number, shard))

    def answer(self) -> tuple[int, Shard, list[Row]]:
        try:
            rows: list[Row] = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error
        return *self.asked.popleft(), rows

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def _death(self) -> MMHashError:
        self._process.join()
        return MMHashError(
            f"a worker died (exit status {self._process.exitcode}), perhaps for want of memory:"
            " what was finished is kept, the same command goes on from there"
        )


def _serve(pipe: Connection) -> None:
    """Hash what is asked for, until the parent ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells all; the parent tells us
    tasks: SimpleQueue[_Task] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, tasks), daemon=True).start()
    while True:
        hash_shard, options, threads = tasks.get()
        pipe.send(hash_shard(options, threads))


def _listen(pipe: Connection, tasks: SimpleQueue[_Task]) -> None:
    """Take what is asked for ahead, or the parent could not write it while we hash.

    Nobody waits for the rest of a large file when the parent was killed.
    """
    try:
        while True:
            tasks.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)
