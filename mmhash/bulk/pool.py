"""Workers that hash shards, one for each core; each has one shard in work and one queued.

Shards of large files are hashed by threads, because BLAKE3 does not hold the GIL and two processes
take 0.2 s of CPU to start; those of small files, images and rows by processes. Each worker has its
own pipe for tasks and results, so that the parent notices a process that exits in the middle of a
result; a ProcessPoolExecutor would wait forever for the rest of it.
"""

import multiprocessing
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Self

from mmhash.bulk.work import SLICE, Options, Row, Shard
from mmhash.errors import MMHashError

# Shards that a worker has, so that it stays busy while the parent writes its last result to disk.
_AHEAD = 2

# Files of this size, on average, are hashed by threads: Python, which holds the GIL, then takes
# about 7 % of the time. A larger shard has a process, which can be killed in the middle of it.
_THREADED_FILE = 1 << 20
_THREADED_SHARD = 1 << 30


class Pool:
    """Up to `count` threads and as many processes, each started when a shard needs it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads: list[_Worker] = []
        self._processes: list[_Worker] = []

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

    @property
    def _workers(self) -> "list[_Worker]":
        return [*self._threads, *self._processes]

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
            if is_listed or len(queue) > self._count:
                self._submit(queue, options)
            yield from results  # the workers are busy while the caller writes these
            results = self._results(None if is_listed else 0)
        yield from results

    @property
    def _submitted(self) -> int:
        return sum(len(worker.submitted) for worker in self._workers)

    def _submit(self, queue: list[tuple[int, int, Shard]], options: Options) -> None:
        """Submit shards to the workers with fewer than _AHEAD."""
        while queue:
            # Several threads if there are fewer shards than workers.
            threads = max(1, self._count // (len(queue) + self._submitted))
            _, number, shard = queue[0]
            if threads == 1 and _suits_thread(shard, options):
                worker = self._choose(self._threads, _Thread)
            else:
                worker = self._choose(self._processes, _Process)
            if len(worker.submitted) == _AHEAD:
                return
            heappop(queue)
            worker.submit(number, shard, options, threads)

    def _choose(self, workers: "list[_Worker]", start: "Callable[[], _Worker]") -> "_Worker":
        """Return the worker with the fewest shards: a new one if all are busy, up to the count."""
        if len(workers) < self._count and all(worker.submitted for worker in workers):
            workers.append(start())
        return min(workers, key=lambda worker: len(worker.submitted))

    def _results(self, timeout: float | None) -> list[tuple[int, Shard, list[Row]]]:
        """Return the finished shards; without a time-out, wait until there is one."""
        busy = {worker.pipe: worker for worker in self._workers if worker.submitted}
        ready = wait(busy, timeout if busy else 0)
        results = (busy[pipe].result() for pipe in ready if isinstance(pipe, Connection))
        return [result for result in results if result is not None]


def _suits_thread(shard: Shard, options: Options) -> bool:
    """Return True for a shard of large files, which one thread hashes without Python's help."""
    return (
        options.of == "bytes"
        and len(shard.names) * _THREADED_FILE <= shard.nbytes <= _THREADED_SHARD
    )


class _Worker(ABC):
    """The parent's end of a worker's pipe, and the shards that it has."""

    def __init__(self) -> None:
        self.pipe, self._worker_pipe = multiprocessing.Pipe()
        self.submitted: deque[tuple[int, Shard]] = deque()

    def submit(self, number: int, shard: Shard, options: Options, threads: int) -> None:
        try:
            self.pipe.send((shard.hash, options, threads))
        except OSError as error:
            raise self._exit_error() from error
        self.submitted.append((number, shard))

    def result(self) -> tuple[int, Shard, list[Row]] | None:
        """Return the rows of the first shard; None if it was submitted again."""
        try:
            rows: list[Row] = self.pipe.recv()
        except (EOFError, OSError) as error:
            if self._submit_again():
                return None
            raise self._exit_error() from error
        return *self.submitted.popleft(), rows

    def _submit_again(self) -> bool:
        """Replace a worker that a truncated file has ended; return False if it ended otherwise."""
        return False

    @abstractmethod
    def end(self) -> None:
        """End the worker."""

    @abstractmethod
    def _exit_error(self) -> MMHashError:
        """Return the reason for which the worker has ended."""


class _Thread(_Worker):
    def __init__(self) -> None:
        super().__init__()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Hash shards until the parent closes its end of the pipe."""
        try:
            while True:
                hash_shard, options, threads = self._worker_pipe.recv()
                self._worker_pipe.send(hash_shard(options, threads))
        except Exception as error:  # noqa: BLE001  (EOFError at the end; others are reported)
            self._error = error
        finally:
            self._worker_pipe.close()

    def end(self) -> None:
        self.pipe.close()
        self._thread.join()

    def _exit_error(self) -> MMHashError:
        self._thread.join()
        return MMHashError(f"a worker thread failed: {self._error!r}")


class _Process(_Worker):
    def __init__(self) -> None:
        super().__init__()
        self._options = Options()
        self._may_map = False
        self._start()

    def _start(self) -> None:
        descriptor = self._worker_pipe.fileno()
        self._process = subprocess.Popen(  # noqa: S603  (the arguments are ours)
            [sys.executable, "-P", "-m", "mmhash.bulk.worker", str(descriptor)],
            pass_fds=[descriptor],
            start_new_session=True,  # Ctrl-C is for the parent, which ends its workers
        )
        # The worker has the only copy of its end: the pipe ends when it exits.
        self._worker_pipe.close()

    def submit(self, number: int, shard: Shard, options: Options, threads: int) -> None:
        self._options = options
        self._may_map |= threads > 1
        super().submit(number, shard, options, threads)

    def _submit_again(self) -> bool:
        if self._process.wait() != -signal.SIGBUS or not self._may_map:
            return False
        shards = list(self.submitted)
        self.submitted.clear()
        self.pipe.close()
        self.pipe, self._worker_pipe = multiprocessing.Pipe()
        self._may_map = False
        self._start()
        for number, shard in shards:
            self.submit(number, shard, self._options, threads=1)  # one thread reads, and maps none
        return True

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.pipe.close()

    def _exit_error(self) -> MMHashError:
        status = self._process.wait()
        return MMHashError(
            f"a worker exited (status {status}), perhaps for lack of memory: finished shards are"
            " kept, run the same command again to resume"
        )
