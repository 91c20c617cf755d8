"""Processes that hash shards: as many as cores, each with one shard at a time.

A worker is spawned, asked and answered through a pipe of its own, so that one which dies in the
middle of an answer is noticed; a ProcessPoolExecutor would wait for the rest of it for ever.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait

from mmhash.bulk.work import SLICE, Options, Row, Shard
from mmhash.errors import MMHashError

_Task = tuple[int, Callable[[Options, int], list[Row]], int]


def hash_shards(
    shards: dict[int, Shard], options: Options, processes: int
) -> Iterator[tuple[int, list[Row]]]:
    """The rows of shards by their numbers, in the order in which they are done."""
    # Large files first, or all would wait for one of them in the end; the rest as they come.
    waiting = deque(sorted(shards, key=lambda number: -max(shards[number].nbytes, SLICE)))
    unfinished = len(waiting)
    workers = [_Worker(options) for _ in range(min(processes, unfinished))]
    idle = list(workers)
    answers: list[tuple[int, list[Row]]] = []
    try:
        while unfinished:
            while waiting and idle:
                number = waiting.popleft()
                # More threads than one where there are fewer shards than processes.
                idle.pop().ask((number, shards[number].hash, max(1, processes // unfinished)))
            yield from answers  # the workers are busy while these are kept
            busy = {worker.pipe: worker for worker in workers if worker not in idle}
            ready = [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]
            answers = [worker.answer() for worker in ready]
            idle += ready
            unfinished -= len(answers)
        yield from answers
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    def __init__(self, options: Options) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, options), daemon=True)
        self._process.start()
        theirs.close()  # the last end of its side is the worker's: when that dies, the pipe ends

    def ask(self, task: _Task) -> None:
        try:
            self.pipe.send(task)
        except OSError as error:
            raise self._death() from error

    def answer(self) -> tuple[int, list[Row]]:
        try:
            answer: tuple[int, list[Row]] = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error
        return answer

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


def _serve(pipe: Connection, options: Options) -> None:
    """Hash what is asked for, until the parent ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells all; the parent tells us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        number, hash_shard, threads = pipe.recv()
        pipe.send((number, hash_shard(options, threads)))


def _end_with_parent() -> None:
    """Nobody waits for the rest of a large file when the parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
