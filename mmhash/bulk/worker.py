"""A process that hashes shards: `python -m mmhash.bulk.worker DESCRIPTOR`, started by the pool."""

import os
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue

from mmhash.bulk.work import Options, Row

_Task = tuple[Callable[[Options, int], list[Row]], Options, int]


def serve(pipe: Connection) -> None:
    """Hash shards until the parent ends this process."""
    tasks: SimpleQueue[_Task] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, tasks), daemon=True).start()
    while True:
        hash_shard, options, threads = tasks.get()
        pipe.send(hash_shard(options, threads))


def _listen(pipe: Connection, tasks: SimpleQueue[_Task]) -> None:
    """Receive tasks while another thread hashes; otherwise the parent would block in send().

    If the parent has ended, exit at once, without hashing the rest of a large file.
    """
    try:
        while True:
            tasks.put(pipe.recv())
    finally:
        os._exit(1)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
