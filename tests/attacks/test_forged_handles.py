"""A handle that names memory of others, a file, or more than there is (CVE-2026-115912 led to pickle).

Every field is checked before anything is opened, and what is opened must be a segment of this user.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.errors import TransportError
from mmhash.transport import IpcTensor, SharedTensor
from tests.support.responses import items_of, refusal_of

SHM = Path("/dev/shm")


@pytest.fixture
def handle() -> Iterator[dict[str, Any]]:
    with SharedTensor.create(np.arange(8, dtype=np.uint8)) as segment:
        yield segment.handle()


FORGERIES: dict[str, dict[str, Any]] = {
    "another folder": {"name": "../../etc/passwd"},
    "a path": {"name": "/etc/passwd"},
    "a segment of others": {"name": "psm_12345678"},
    "a segment that is not there": {"name": "mmhash-1-1-0000000000000000"},
    "a name with more": {"name": "mmhash-1-1-0000000000000000\n"},
    "a name with a NUL": {"name": "mmhash-1-1-0000000000000000\0"},
    "no name": {"name": None},
    "beyond the end": {"offset": 1 << 40},
    "beyond 64 bits": {"offset": 1 << 63},
    "before the start": {"offset": -1},
    "more than there is": {"nbytes": 1 << 30, "shape": [1 << 30]},
    "a length that is true": {"nbytes": True, "shape": [1]},
    "a length that is text": {"nbytes": "8"},
    "a fraction": {"offset": 0.0},
    "a shape that overflows": {"shape": [2**62, 2**62]},
    "a shape that is negative": {"shape": [-8]},
    "a shape of another length": {"shape": [7]},
    "many axes": {"shape": [1] * 65},
    "an object dtype": {"dtype": "object"},
    "another version": {"version": 2},
    "another transport": {"transport": "cuda_ipc"},
    "another host": {"host": "00000000-0000-0000-0000-000000000000"},
    "a field that is none": {"pickle": "gASVKAAAAAAAAACMBXBvc2l4"},
    "a lease of nobody": {
        "lease": {"name": "mmhash-1-1-0000000000000000", "slot": 0, "generation": 1}
    },
    "a lease that is text": {"lease": "x"},
}


@pytest.mark.parametrize("name", FORGERIES)
def test_it_is_refused(server: Any, proof: Any, handle: dict[str, Any], name: str) -> None:
    forged = {**handle, **FORGERIES[name]}
    answer = server.hash_json({"kind": "tensor", "shm": forged}, proof=proof)
    assert refusal_of(answer) == "invalid-handle"
    with pytest.raises(TransportError):
        SharedTensor.open(forged).array()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "empty"])
def test_what_is_no_segment_is_not_opened(
    server: Any, proof: Any, handle: dict[str, Any], kind: str
) -> None:
    path = SHM / f"mmhash-{os.getpid()}-1-{secrets.token_hex(8)}"
    {
        "link": lambda: path.symlink_to("/etc/passwd"),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "empty": path.touch,
    }[kind]()
    try:
        forged = {**handle, "name": path.name}
        answer = server.hash_json({"kind": "tensor", "shm": forged}, proof=proof)
        assert refusal_of(answer) == "invalid-handle"
    finally:
        path.rmdir() if kind == "folder" else path.unlink()


def test_a_digest_that_it_carries_is_not_believed(
    server: Any, proof: Any, handle: dict[str, Any]
) -> None:
    forged = {**handle, "digests": [[0, 8, f"blake3:{'00' * 32}"]]}
    (item,) = items_of(server.hash_json({"kind": "tensor", "shm": forged}, proof=proof))
    assert item["key"] == mmhash.key(np.arange(8, dtype=np.uint8)).hex()


def test_gpu_memory_has_a_switch_of_its_own(server: Any, proof: Any) -> None:
    forged = {"offset": 0, "nbytes": 4, "dtype": "uint8", "shape": [4]}
    forged["lease"] = {"name": "mmhash-1-1-0000000000000000", "slot": 0, "generation": 1}
    answer = server.hash_json({"kind": "tensor", "cuda_ipc": forged}, proof=proof)
    assert refusal_of(answer) == "in-place-off"
    with pytest.raises(mmhash.MMHashError):
        mmhash.key(IpcTensor.open(forged))


def test_a_segment_that_shrank_is_refused(server: Any, proof: Any) -> None:
    with SharedTensor.create(np.zeros(1 << 20, np.uint8)) as segment:
        os.truncate(SHM / segment.handle()["name"], 4096)
        answer = server.hash_json({"kind": "tensor", "shm": segment.handle()}, proof=proof)
        assert refusal_of(answer) == "invalid-handle"
