"""Processes that hash shards, one for each core; each has one shard in work and one queued.

Each worker has its own pipe for tasks and results, so that the parent notices a worker that exits
in the middle of a result; a ProcessPoolExecutor would wait forever for the rest of it.
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

# Shards that a worker has, so that it stays busy while the parent writes its last result to disk.
_AHEAD = 2


class Pool:
    """Worker processes; they take 0.1 s to start, so create the pool before listing the source."""

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
        """Yield the rows of numbered shards, in the order in which they are finished.

        More shards are listed meanwhile. Of the listed ones, shards above SLICE are hashed first,
        largest first, so that the run does not end with one of them; the others in order.
        """
        queue: list[tuple[int, int, Shard]] = []
        results: list[tuple[int, Shard, list[Row]]] = []
        is_listed = False
        while not is_listed or queue or self._submitted:
            if (numbered := next(shards, None)) is not None:
                number, shard = numbered
                heappush(queue, (-max(shard.nbytes, SLICE), number, shard))
            else:
                is_listed = True
            if is_listed or len(queue) > len(self._workers):
                self._submit(queue, options)
            yield from results  # the workers are busy while the caller writes these
            results = self._results(None if is_listed else 0)
        yield from results

    @property
    def _submitted(self) -> int:
        return sum(len(worker.submitted) for worker in self._workers)

    def _submit(self, queue: list[tuple[int, int, Shard]], options: Options) -> None:
        """Submit shards to the workers with fewer than _AHEAD."""
        for depth in range(_AHEAD):
            for worker in self._workers:
                if queue and len(worker.submitted) <= depth:
                    # Several threads if there are fewer shards than workers.
                    threads = max(1, len(self._workers) // (len(queue) + self._submitted))
                    _, number, shard = heappop(queue)
                    worker.submit(number, shard, options, threads)

    def _results(self, timeout: float | None) -> list[tuple[int, Shard, list[Row]]]:
        """Return the finished shards; without a time-out, wait until there is one."""
        busy = {worker.pipe: worker for worker in self._workers if worker.submitted}
        return [
            busy[pipe].result()
            for pipe in wait(busy, timeout if busy else 0)
            if isinstance(pipe, Connection)
        ]


class _Worker:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        self.submitted: deque[tuple[int, Shard]] = deque()
        self._process = context.Process(target=_serve, args=(child_pipe,), daemon=True)
        self._process.start()
        child_pipe.close()  # the worker has the only copy of its end: the pipe ends when it exits

    def submit(self, number: int, shard: Shard, options: Options, threads: int) -> None:
        try:
            self.pipe.send((shard.hash, options, threads))
        except OSError as error:
            raise self._exit_error() from error
        self.submitted.append((number, shard))

    def result(self) -> tuple[int, Shard, list[Row]]:
        try:
            rows: list[Row] = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._exit_error() from error
        return *self.submitted.popleft(), rows

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def _exit_error(self) -> MMHashError:
        self._process.join()
        return MMHashError(
            f"a worker exited (status {self._process.exitcode}), perhaps for lack of memory:"
            " finished shards are kept, run the same command again to resume"
        )


def _serve(pipe: Connection) -> None:
    """Hash shards until the parent ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent acts
    tasks: SimpleQueue[_Task] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, tasks), daemon=True).start()
    while True:
        hash_shard, options, threads = tasks.get()
        pipe.send(hash_shard(options, threads))


def _listen(pipe: Connection, tasks: SimpleQueue[_Task]) -> None:
    """Receive tasks while another thread hashes; otherwise the parent would block in send().

    If the parent was killed, exit at once, without hashing the rest of a large file.
    """
    try:
        while True:
            tasks.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)
