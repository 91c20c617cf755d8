"""A run: processes hash the shards of a source, and each process writes its own parts.

This process imports pyarrow only to resume a run. The other processes start meanwhile.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Protocol

from mmhash import __version__
from mmhash.bulk.items import BulkOptions, Counts
from mmhash.bulk.parts import finished_parts, locked, name_of, write_part
from mmhash.bulk.shards import Shard
from mmhash.errors import MMHashError, is_shortage
from mmhash.framing import SPEC_VERSION


class Watch(Protocol):
    """Receives progress reports of a run."""

    def found(self, shard: Shard) -> None:
        """Add a shard to the total."""

    def done(self, shard: Shard) -> None:
        """Add a shard to the finished shards."""


def hash_source(
    shards: Iterable[Shard],
    folder: Path,
    options: BulkOptions,
    source: dict[str, str],
    *,
    processes: int,
    watch: Watch,
) -> Counts:
    """Write the keys of a source to a folder, except for finished parts, and return the counts.

    A run resumes an earlier run that has equal options and the same `source` text.
    """
    about = {
        **source,
        "mmhash": __version__,
        "spec": str(SPEC_VERSION),
        "algorithm": options.algorithm,
        "of": options.of,
        "engines": ",".join(options.engines),
    }
    with locked(folder), _workers(processes) as workers:
        finished = finished_parts(folder, about)
        counts: dict[str, Counts] = {}
        pending: dict[Future[Counts], tuple[str, Shard]] = {}
        for number, shard in enumerate(shards):
            watch.found(shard)
            name = name_of(number, shard)
            if name in finished:
                counts[name] = finished[name]
                watch.done(shard)
            else:
                with _uninterrupted():
                    future = workers.submit(write_part, folder / name, shard, options, about)
                pending[future] = name, shard
        for future in as_completed(pending):
            name, shard = pending[future]
            counts[name] = future.result()
            watch.done(shard)
        for name in finished.keys() - counts.keys():
            (folder / name).unlink()  # the shard of this part has changed
        return Counts(*map(sum, zip(Counts(0, 0), *counts.values(), strict=True)))


@contextmanager
def _workers(count: int) -> Iterator[Executor]:
    """Start processes as shards need them. If the run fails, end the processes at once."""
    multiprocessing.set_forkserver_preload(["mmhash.bulk.tables"])
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # never import from the working directory
    # Only this process handles Ctrl-C, and then ends the other processes.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, interrupt)
    context = multiprocessing.get_context("forkserver")
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(count, context, _end_with_parent)
    try:
        yield executor
    except BaseException as error:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        if isinstance(error, BrokenProcessPool) or is_shortage(error):
            raise MMHashError(
                f"the run lacks memory or descriptors, or a process was killed ({error}): finished"
                " parts are kept, run the same command again to resume"
            ) from error
        raise
    finally:
        executor.shutdown()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C: a process that is only half started would write a traceback."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end_with_parent() -> None:
    """End this process when the run is killed, even within a large file."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
