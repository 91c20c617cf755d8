"""A ledger that is forged, or takes another's name, so that one content gets another's key.

What a reader keeps is known by the file that was verified, and each length is checked at each use.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.transport import SharedPool, SharedTensor
from mmhash.transport.segments import Segment
from tests.support.responses import items_of, refusal_of

SHM = Path("/dev/shm")
MIB = 1 << 20


@pytest.fixture
def pool() -> Iterator[SharedPool]:
    made = SharedPool(MIB)
    made.lease(bytes(8192))  # so that others do not start at the pool's first byte
    yield made
    made.close()


def ledger_of(
    memory: str, nbytes: int, *, start: int = 0, length: int = 4096, generation: int = 1
) -> bytes:
    """A ledger of one slot, whose memory is the segment of that name."""
    header = struct.pack("<8sIIQ64s", b"mmhpool1", 1, 1, nbytes, memory.encode())
    slot = struct.pack("<IIQQ", generation, generation, start, length)
    return header.ljust(128, b"\0") + slot.ljust(64, b"\0")


def segment_of(content: bytes) -> Segment:
    made = Segment(len(content))
    made.fill(memoryview(content))
    return made


def handle_of(memory: str, ledger: str, nbytes: int, offset: int = 0) -> dict[str, Any]:
    lease = {"name": ledger, "slot": 0, "generation": 1}
    return {"name": memory, "offset": offset, "nbytes": nbytes, "dtype": "uint8", "shape": [nbytes], "lease": lease}  # fmt: skip


def replace(name: str, content: bytes) -> None:
    """Let another file take the name."""
    (SHM / name).unlink()
    (SHM / name).write_bytes(content)
    (SHM / name).chmod(0o600)


@pytest.mark.parametrize("claimed", [1, 4096, 8192, 8193])
def test_a_short_mapping_under_anothers_name(
    server: Any, proof: Any, pool: SharedPool, claimed: int
) -> None:
    values = np.random.default_rng(1).integers(0, 256, 300_000, dtype=np.uint8)
    handle = pool.lease(values).handle()
    forged = segment_of(ledger_of(handle["name"], claimed, length=1))
    server.hash_json(
        {"kind": "tensor", "shm": handle_of(handle["name"], forged.name, 1)}, proof=proof
    )
    (item,) = items_of(server.hash_json({"kind": "tensor", "shm": handle}, proof=proof))
    assert item["key"] == mmhash.key(values).hex()
    assert mmhash.key(SharedTensor.open(pool.lease(values).handle())) == mmhash.key(values)
    forged.close()


def test_a_short_mapping_in_a_reader_of_the_library(pool: SharedPool) -> None:
    values = np.random.default_rng(1).integers(0, 256, 300_000, dtype=np.uint8)
    handle = pool.lease(values).handle()
    forged = segment_of(ledger_of(handle["name"], 4096))
    mmhash.key(SharedTensor.open(handle_of(handle["name"], forged.name, 4096)))
    assert mmhash.key(SharedTensor.open(handle)) == mmhash.key(values)
    forged.close()


@pytest.mark.parametrize("nbytes", [300_000, 2 * MIB])
@pytest.mark.parametrize("again", [4096, 300_000, 2 * MIB])
def test_another_file_takes_the_name_of_a_pool(
    server: Any, proof: Any, nbytes: int, again: int
) -> None:
    first, second = os.urandom(nbytes), os.urandom(again)
    memory = segment_of(first)
    ledger = segment_of(ledger_of(memory.name, nbytes, length=nbytes))
    item = {"kind": "tensor", "shm": handle_of(memory.name, ledger.name, nbytes)}
    kept = [SharedTensor.open(item["shm"])]
    assert mmhash.key(kept[0]) == mmhash.key(np.frombuffer(first, np.uint8))
    for content in (first, second):
        if content is second:
            replace(memory.name, second)
        answer = server.hash_json(item, proof=proof)
        opened = SharedTensor.open(item["shm"])
        if len(content) < nbytes:
            assert refusal_of(answer) == "invalid-handle"
            with pytest.raises(mmhash.TransportError):
                mmhash.key(opened)
            continue
        expected = mmhash.key(np.frombuffer(content, np.uint8)[:nbytes])
        assert items_of(answer)[0]["key"] == expected.hex()
        assert mmhash.key(opened) == expected
        kept.append(opened)
    memory.close()
    ledger.close()


def test_another_file_takes_the_name_of_a_ledger(server: Any, proof: Any) -> None:
    """With the same generation: the lease of then, of the slice of now."""
    content = os.urandom(8192)
    memory = segment_of(content)
    ledger = segment_of(ledger_of(memory.name, 8192))
    handle = handle_of(memory.name, ledger.name, 4096)
    kept = SharedTensor.open(handle)
    assert bytes(kept.view) == content[:4096]
    assert items_of(server.hash_json({"kind": "tensor", "shm": handle}, proof=proof))
    replace(ledger.name, ledger_of(memory.name, 8192, start=4096))
    assert refusal_of(server.hash_json({"kind": "tensor", "shm": handle}, proof=proof)) == (
        "invalid-handle"
    )
    with pytest.raises(mmhash.TransportError):
        mmhash.key(SharedTensor.open(handle))
    memory.close()
    ledger.close()


@pytest.mark.parametrize("size", [0, 4095, 8192, 1 << 24])
def test_a_pool_that_changes_its_length(server: Any, proof: Any, size: int) -> None:
    content = os.urandom(4096)
    memory = segment_of(content)
    ledger = segment_of(ledger_of(memory.name, 4096))
    item = {"kind": "tensor", "shm": handle_of(memory.name, ledger.name, 4096)}
    for _ in range(2):
        (found,) = items_of(server.hash_json(item, proof=proof))
        assert found["key"] == mmhash.key(np.frombuffer(content, np.uint8)).hex()
    os.truncate(SHM / memory.name, size)
    answer = server.hash_json(item, proof=proof)
    if size == 8192:  # one page more, of which nobody reads the hole
        os.truncate(SHM / memory.name, 4096)
        assert items_of(server.hash_json(item, proof=proof))
    else:
        assert refusal_of(answer) == "invalid-handle"
    memory.close()
    ledger.close()


FORGERIES: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "beyond the pool": ({"nbytes": 4096, "start": 4096}, {"offset": 4096}),
    "a slice longer than the pool": ({"nbytes": 4096, "length": 8192}, {}),
    "a pool longer than its file": (
        {"nbytes": 1 << 40, "length": 1 << 40},
        {"nbytes": 1 << 39, "shape": [1 << 39]},
    ),
    "an offset that overflows": ({"nbytes": 4096, "start": (1 << 64) - 4096}, {}),
    "a length that overflows": ({"nbytes": 4096, "start": 4096, "length": (1 << 64) - 1}, {}),
    "a negative offset": ({"nbytes": 4096}, {"offset": -4096}),
    "no bytes with a shape": ({"nbytes": 4096, "length": 0}, {"nbytes": 0}),
    "a slice of no bytes": ({"nbytes": 4096, "length": 0}, {}),
    "another generation": ({"nbytes": 4096, "generation": 2}, {}),
    "generation 0": ({"nbytes": 4096, "generation": 0}, {}),
    "no slot": ({"nbytes": 4096}, {"lease": {"slot": 1, "generation": 1}}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_slice_is_refused(server: Any, proof: Any, forgery: str) -> None:
    ledger_says, handle_says = FORGERIES[forgery]
    memory = segment_of(os.urandom(8192))
    ledger = segment_of(ledger_of(memory.name, **ledger_says))
    handle = handle_of(memory.name, ledger.name, 4096) | handle_says
    handle["lease"] = {**handle["lease"], "name": ledger.name}
    answer = server.hash_json({"kind": "tensor", "shm": handle}, proof=proof)
    assert refusal_of(answer) == "invalid-handle"
    with pytest.raises(mmhash.TransportError):
        mmhash.key(SharedTensor.open(handle))
    memory.close()
    ledger.close()
