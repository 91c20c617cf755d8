"""Compares handles of shared memory with 20 MiB through a pipe, and measures hashing by handle.

CUDA handles are measured if the machine has a GPU.
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
from bench.support.measure import Row, compare, medians, report
from mmhash.transport import FeaturePool, IpcTensor, SharedPool, SharedTensor

MIB = 1 << 20
NOISE = np.random.default_rng(0).integers(0, 256, 20 * MIB, dtype=np.uint8).reshape(80, -1)
ITEM = 3 * MIB // 2

# The second process reads a handle, or null and then the bytes. It writes back the key.
CONSUMER = """
import json, os, sys
import numpy, mmhash
from mmhash.transport import SharedTensor

buffer = numpy.empty((80, 262144), numpy.uint8)

while line := os.read(0, 4096):
    handle = json.loads(line)
    if handle is None:
        os.write(1, b"k")
        flat, done = memoryview(buffer).cast("B"), 0
        while done < len(flat):
            done += os.readv(0, [flat[done:]])
        key = mmhash.key(buffer)
    else:
        with SharedTensor.open(handle) as feature:
            key = mmhash.key(feature)
    os.write(1, key.bytes)
"""


class Consumer:
    """The second process, which returns the key of each tensor that it receives."""

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
        """Send all bytes through the pipe. Return the key."""
        self._send(b"null")
        os.read(self._from, 1)  # the consumer is ready for the bytes
        self._send(NOISE.data.cast("B"))
        return os.read(self._from, 32)

    def of_handle(self, feature: SharedTensor) -> bytes:
        """Send a handle through the pipe. Return the key."""
        self._send(json.dumps(feature.handle()).encode())
        return os.read(self._from, 32)

    def end(self) -> None:
        """Stop the process."""
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
    consumer = Consumer()
    try:
        yield consumer
    finally:
        consumer.end()


def rows() -> list[Row]:
    """Measure handles of shared memory, and CUDA handles if there is a GPU."""
    figures = shared()
    if torch.cuda.is_available():
        figures += leased()
    return figures


def shared() -> list[Row]:
    """Measure from the producer's call until the second process has returned the key."""
    with _consumer() as consumer, SharedTensor.create(NOISE) as owned:
        expected = mmhash.key(NOISE).bytes

        pool = SharedPool(64 * MIB)

        def pooled() -> bytes:
            return consumer.of_handle(pool.lease(NOISE))

        def fresh() -> bytes:
            with SharedTensor.create(NOISE) as segment:
                return consumer.of_handle(segment)

        calls: list[Callable[[], bytes]] = [
            consumer.of_bytes, pooled, lambda: consumer.of_handle(owned), fresh
        ]  # fmt: skip
        if any(call() != expected for call in calls):
            raise AssertionError("the second process has another key")
        pipe = {"pipe": (calls[0], ">= 5")}
        return [
            *compare("20 MiB copied into a pool, until the key", calls[1], pipe, rounds=21),
            *compare("20 MiB in shared memory already, until the key",
                     calls[2], {"pipe": (calls[0], "")}, rounds=21),
            *compare("20 MiB in a new segment, until the key",
                     calls[3], {"pipe": (calls[0], "")}, rounds=21),
        ]  # fmt: skip


def leased() -> list[Row]:
    """Measure keys of 64 items through one handle and from local memory, in a second process."""
    bundle = torch.randint(0, 255, (64, ITEM), dtype=torch.uint8, device="cuda")
    pool = FeaturePool(0)
    handle = json.dumps(pool.lease(bundle).handle())
    output = subprocess.check_output([sys.executable, "-m", "bench.transport", handle], text=True)
    pool.close()
    own, local = (float(seconds) * 1e6 for seconds in output.split())
    what = "keys of 64 x 1.5 MiB through a handle"
    return [Row(what, own, "us", "local", local, own / local, "<= 1.2 of local")]


def print_times(handle: str) -> None:
    """Print both times. The second process runs this."""
    feature = IpcTensor.open(json.loads(handle))
    through, local = (mmhash.split(x, counts=64) for x in (feature, feature.reconstruct()))
    if mmhash.keys(through) != mmhash.keys(local):
        raise AssertionError("the handle leads to another key")
    print(*medians(lambda: mmhash.keys(through), lambda: mmhash.keys(local), loops=3))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print_times(sys.argv[1])
    else:
        report("transport", rows())
