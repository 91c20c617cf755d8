"""What does it save to send a handle instead of 20 MiB, and does hashing behind one cost anything?

`python -m bench.transport`; the figures of a GPU's handles are taken where there is one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

import mmhash
from bench.measure import Row, compare, medians, report
from mmhash.transport import FeaturePool, IpcTensor, SharedPool, SharedTensor

MIB = 1 << 20
NOISE = np.random.default_rng(0).integers(0, 256, 20 * MIB, dtype=np.uint8).reshape(80, -1)
ITEM = 3 * MIB // 2

# A second process: what comes is a handle, or null and then the bytes; a key goes back.
CONSUMER = """
import json, os, sys
import numpy, mmhash
from mmhash.transport import SharedTensor

room = numpy.empty((80, 262144), numpy.uint8)

while line := os.read(0, 4096):
    told = json.loads(line)
    if told is None:
        os.write(1, b"k")
        flat, done = memoryview(room).cast("B"), 0
        while done < len(flat):
            done += os.readv(0, [flat[done:]])
        key = mmhash.key(room)
    else:
        with SharedTensor.open(told) as feature:
            key = mmhash.key(feature)
    os.write(1, key.bytes)
"""


class Consumer:
    """The second process, asked for the key of what is sent to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONSUMER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()

    def of_bytes(self) -> bytes:
        """All of it through a pipe."""
        self._send(b"null")
        os.read(self._from, 1)  # the consumer waits for bytes, and takes nothing else for them
        self._send(NOISE.data.cast("B"))
        return os.read(self._from, 32)

    def of_handle(self, feature: SharedTensor) -> bytes:
        """Its handle through the pipe."""
        self._send(json.dumps(feature.handle()).encode())
        return os.read(self._from, 32)

    def end(self) -> None:
        """Let the process go."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait()

    def _send(self, data: bytes | memoryview) -> None:
        view, done = memoryview(data), 0
        while done < len(view):
            done += os.write(self._to, view[done:])


@contextmanager
def _consumer() -> Iterator[Consumer]:
    made = Consumer()
    try:
        yield made
    finally:
        made.end()


def rows() -> list[Row]:
    """Between processes of a host, and between those of a GPU if there is one."""
    found = shared()
    if torch.cuda.is_available():
        found += leased()
    return found


def shared() -> list[Row]:
    """From the producer's call to the key that the second process gives back."""
    with _consumer() as consumer, SharedTensor.create(NOISE) as owned:
        expected = mmhash.key(NOISE).bytes

        pool = SharedPool(64 * MIB)

        def pooled() -> bytes:
            return consumer.of_handle(pool.lease(NOISE))

        def fresh() -> bytes:
            with SharedTensor.create(NOISE) as made:
                return consumer.of_handle(made)

        calls: list[Callable[[], bytes]] = [
            consumer.of_bytes, pooled, lambda: consumer.of_handle(owned), fresh
        ]  # fmt: skip
        if any(call() != expected for call in calls):
            raise AssertionError("the second process has another key")
        pipe = {"pipe": (calls[0], ">= 5")}
        return [
            *compare("20 MiB copied into a pool, to key there", calls[1], pipe, rounds=21),
            *compare("20 MiB that lies there, to key there",
                     calls[2], {"pipe": (calls[0], "")}, rounds=21),
            *compare("20 MiB in a new segment, to key there",
                     calls[3], {"pipe": (calls[0], "")}, rounds=21),
        ]  # fmt: skip


def leased() -> list[Row]:
    """In a second process: keys of 64 items behind one handle, and of the same local."""
    bundle = torch.randint(0, 255, (64, ITEM), dtype=torch.uint8, device="cuda")
    pool = FeaturePool(0)
    handle = json.dumps(pool.lease(bundle).handle())
    told = subprocess.check_output([sys.executable, "-m", "bench.transport", handle], text=True)
    pool.close()
    own, local = (float(seconds) * 1e6 for seconds in told.split())
    what = "keys of 64 x 1.5 MiB behind a handle"
    return [Row(what, own, "us", "local", local, own / local, "<= 1.2 of local")]


def behind_and_local(handle: str) -> None:
    """The second process: print both times."""
    feature = IpcTensor.open(json.loads(handle))
    behind, local = (mmhash.split(x, counts=64) for x in (feature, feature.reconstruct()))
    if mmhash.keys(behind) != mmhash.keys(local):
        raise AssertionError("the handle leads to another key")
    print(*medians(lambda: mmhash.keys(behind), lambda: mmhash.keys(local), loops=3))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        behind_and_local(sys.argv[1])
    else:
        report("transport", rows())
