"""A segment that its owner cuts short, or never wrote, ends the server (SIGBUS) or fills the memory.

Untrusted segments are mapped by another process or read by pread(); those with holes are refused.
"""

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.transport import SharedPool, SharedTensor
from mmhash.transport.segments import Segment
from tests.support.responses import items_of, refusal_of
from tests.support.victim import serving

SHM = Path("/dev/shm")
MIB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """One worker, which may be given 96 MiB."""
    with serving(max_body_bytes=96 * MIB) as victim:
        yield victim


@pytest.fixture
def sparse() -> Iterator[Segment]:
    """A segment of 1 GiB, all of it a hole."""
    made = Segment(1)
    os.truncate(SHM / made.name, 0)
    os.truncate(SHM / made.name, 1 << 30)
    yield made
    made.close()


def plain(name: str, nbytes: int, offset: int = 0) -> dict[str, Any]:
    shm = {"name": name, "offset": offset, "nbytes": nbytes, "dtype": "uint8", "shape": [nbytes]}
    return {"kind": "tensor", "shm": shm}


@pytest.mark.parametrize("left", [0, 4096, 20 * MIB])
def test_it_is_cut_short_while_it_is_hashed(server: Any, proof: Any, left: int) -> None:
    content = np.random.default_rng(2).integers(0, 256, 32 * MIB, dtype=np.uint8)
    expected = mmhash.key(content).hex()
    refused = turn = 0
    while turn < 6 or not refused:  # on a busy machine several may be hashed in time
        with SharedTensor.create(content) as owned:
            answers: list[Any] = []
            item = {"kind": "tensor", "shm": owned.handle()}
            thread = Thread(
                target=lambda item=item, answers=answers: answers.append(
                    server.hash_json(item, proof=proof)
                )
            )
            thread.start()
            time.sleep(turn % 6 * 0.002)
            os.truncate(SHM / owned.handle()["name"], left)
            thread.join()
        if answers[0].status_code == 200:
            assert answers[0].json()["items"][0]["key"] == expected
        else:
            assert answers[0].json()["type"] == "urn:mmhash:problem:invalid-handle"
            refused += 1
        turn += 1
    server.assert_well()


def test_a_pool_is_cut_short_between_calls(server: Any, proof: Any) -> None:
    """Its mapping is kept: the pages behind it are gone."""
    content = np.random.default_rng(3).integers(0, 256, 4 * MIB, dtype=np.uint8)
    pool = SharedPool(8 * MIB)
    handle = pool.lease(content).handle()
    (item,) = items_of(server.hash_json({"kind": "tensor", "shm": handle}, proof=proof))
    assert item["key"] == mmhash.key(content).hex()
    again = pool.lease(content).handle()
    os.truncate(SHM / handle["name"], 4096)
    answer = server.hash_json({"kind": "tensor", "shm": again}, proof=proof)
    assert answer.status_code == 422
    os.truncate(SHM / handle["name"], 8 * MIB)
    assert server.hash_json({"kind": "tensor", "shm": again}, proof=proof).status_code == 422
    server.assert_well()
    pool._ledger.close()


def test_a_ledger_is_cut_short(server: Any, proof: Any) -> None:
    memory = Segment(4096)
    ledger = Segment(192)
    header = struct.pack("<8sIIQ64s", b"mmhpool1", 1, 1, 4096, memory.name.encode())
    ledger.fill(memoryview(header.ljust(128, b"\0") + struct.pack("<IIQQ", 1, 1, 0, 4096)))
    item = plain(memory.name, 4096)
    item["shm"]["lease"] = {"name": ledger.name, "slot": 0, "generation": 1}
    assert server.hash_json(item, proof=proof).status_code == 200
    kept = SharedTensor.open(item["shm"])
    assert bytes(kept.view) == bytes(4096)
    for size in (130, 128, 0):
        os.truncate(SHM / ledger.name, size)
        assert refusal_of(server.hash_json(item, proof=proof)) == "invalid-handle"
        with pytest.raises(mmhash.TransportError):
            mmhash.key(kept)
    kept.close()
    memory.close()
    ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize("nbytes", [1, 4096, 32 * MIB, 1 << 30])
def test_holes_are_neither_read_nor_given_memory(
    server: Any, proof: Any, sparse: Segment, nbytes: int
) -> None:
    assert refusal_of(server.hash_json(plain(sparse.name, nbytes), proof=proof)) == "invalid-handle"
    assert (SHM / sparse.name).stat().st_blocks == 0


def test_a_hole_in_the_middle(server: Any, proof: Any) -> None:
    segment = Segment(4 * MIB)
    os.truncate(SHM / segment.name, 2 * MIB)
    os.truncate(SHM / segment.name, 4 * MIB)
    for offset, nbytes in ((0, 4 * MIB), (3 * MIB, MIB), (0, 4096)):
        answer = server.hash_json(plain(segment.name, nbytes, offset), proof=proof)
        assert refusal_of(answer) == "invalid-handle"
    assert (SHM / segment.name).stat().st_blocks * 512 == 2 * MIB
    segment.close()


def test_one_slice_named_many_times_is_bounded(server: Any, proof: Any) -> None:
    with SharedTensor.create(bytes(4 * MIB)) as owned:
        items = [{"kind": "tensor" if owned.dtype else "bytes", "shm": owned.handle()}] * 25
        assert refusal_of(server.hash_json(*items, proof=proof)) == "body-too-large"
        assert server.hash_json(*items[:24], proof=proof).status_code == 200


def test_a_nonce_in_a_segment_that_is_cut_short(server: Any, proof: Any) -> None:
    os.truncate(SHM / proof["shm"]["name"], 16)
    with SharedTensor.create(b"abc") as owned:
        answer = server.hash_json({"kind": "bytes", "shm": owned.handle()}, proof=proof)
    assert refusal_of(answer) == "other-host"
