"""SharedPool reuses the same pages for successive features, and no reader confuses them."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash import Digest, TransportError
from mmhash.transport import SharedPool, SharedTensor

KIB = 1024
NOISE = np.random.default_rng(4).integers(0, 256, 40 * KIB, dtype=np.uint8)

READER = """
    import json, sys, mmhash
    from mmhash.transport import SharedTensor
    for line in sys.stdin:
        with SharedTensor.open(json.loads(line)) as feature:
            key = mmhash.key(feature)
        print(key, flush=True)
"""


@pytest.fixture
def pool() -> Iterator[SharedPool]:
    made = SharedPool(64 * KIB)
    yield made
    made.close()


@pytest.fixture
def reader() -> Iterator[Any]:
    program = [sys.executable, "-c", textwrap.dedent(READER)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:

        def ask(feature: SharedTensor) -> Digest:
            child.stdin.write(json.dumps(feature.handle()) + "\n")
            child.stdin.flush()
            return Digest.parse(child.stdout.readline().strip())

        yield ask


def test_features_follow_each_other_in_one_place(pool: SharedPool, reader: Any) -> None:
    for turn in range(20):
        values = np.roll(NOISE, turn).view(np.uint16).reshape(10, -1)
        feature = pool.lease(values)
        assert feature.handle()["offset"] == 0
        assert reader(feature) == mmhash.key(values)


def test_slices_of_it_are_read_in_place(pool: SharedPool) -> None:
    values = NOISE.reshape(40, KIB)
    opened = SharedTensor.open(pool.lease(values).handle())
    parts = mmhash.split(opened, counts=[1, 30, 9])
    assert mmhash.keys(parts) == mmhash.keys(mmhash.split(values, counts=[1, 30, 9]))
    assert np.array_equal(parts[1].array(), values[1:31])
    assert not parts[1].array().flags.writeable


def test_a_tensor_of_it_is_a_copy(pool: SharedPool) -> None:
    opened = SharedTensor.open(pool.lease(NOISE).handle())
    tensor = opened.reconstruct()
    tensor.add_(1)
    assert np.array_equal(opened.array(), NOISE)
    opened.close()
    pool.lease(bytes(40 * KIB))
    assert np.array_equal(tensor.numpy(), NOISE + 1)


def test_a_late_reader_gets_an_error_and_no_bytes() -> None:
    pool = SharedPool(64 * KIB, timeout_s=1e-9)
    late = SharedTensor.open(pool.lease(NOISE).handle())
    again = SharedTensor.open(late.handle())
    assert mmhash.key(late) == mmhash.key(NOISE)
    assert pool.lease(bytes(40 * KIB)).handle()["offset"] == 0  # for nobody was in time
    for read in (mmhash.key, mmhash.digest, SharedTensor.reconstruct):
        for feature in (late, again):
            with pytest.raises(TransportError, match="the lease is over"):
                read(feature)


def test_without_room_a_lease_is_refused_until_one_ends(pool: SharedPool, reader: Any) -> None:
    first = pool.lease(NOISE)
    for item in (NOISE[::-1], bytes(65 * KIB)):
        with pytest.raises(TransportError, match="has no slice"):
            pool.lease(item)
    assert reader(first) == mmhash.key(NOISE)
    assert pool.lease(NOISE).handle()["offset"] == 0


def test_a_closed_pool_is_gone_and_leaves_nothing() -> None:
    pool = SharedPool(64 * KIB)
    handle = pool.lease(NOISE).handle()
    opened = SharedTensor.open(handle)
    seen = opened.array()
    pool.close()
    pool.close()
    assert np.array_equal(seen, NOISE)
    with pytest.raises(TransportError, match="the lease is over"):
        mmhash.key(opened)
    with pytest.raises(TransportError, match="the lease is over"):
        mmhash.key(SharedTensor.open(handle))
    del opened, seen
    with pytest.raises(TransportError, match="is gone"):
        mmhash.key(SharedTensor.open(handle))
    another = SharedPool(KIB)
    mmhash.key(SharedTensor.open(another.lease(b"x").handle()))
    assert handle["name"] not in Path("/proc/self/maps").read_text()
    another.close()
