"""A caller from elsewhere who guesses the names of segments, to have this host's memory hashed.

Before items are read in place, the caller proves that it can write a nonce to memory of this host.
"""

import secrets
from typing import Any

import numpy as np
import pytest

from mmhash.transport import SharedTensor
from tests.support.responses import refusal_of
from tests.support.victim import serving

NOWHERE = {"name": "mmhash-1-1-0000000000000000", "offset": 0, "nbytes": 16}


@pytest.mark.parametrize(
    "case", ["none", "another nonce", "a part", "longer", "elsewhere", "other host", "a file"]
)
def test_who_does_not_show_it_is_refused(server: Any, case: str) -> None:
    nonce = secrets.token_bytes(32)
    with SharedTensor.create(nonce) as mine, SharedTensor.create(np.zeros(4)) as tensor:
        shm = mine.handle()
        proof = {
            "none": None,
            "another nonce": {"nonce": "00" * 32, "shm": shm},
            "a part": {"nonce": nonce[:16].hex(), "shm": shm},
            "longer": {"nonce": nonce.hex() + "00", "shm": shm},
            "elsewhere": {"nonce": "00" * 16, "shm": NOWHERE},
            "other host": {"nonce": nonce.hex(), "shm": {**shm, "host": "elsewhere"}},
            "a file": {"nonce": nonce.hex(), "shm": {**shm, "name": "../../etc/hostname"}},
        }[case]
        answer = server.hash_json({"kind": "tensor", "shm": tensor.handle()}, proof=proof)
        assert refusal_of(answer) == "other-host"


@pytest.mark.parametrize("nonce", ["", "00" * 15, "00" * 65, "0" * 33, "zz" * 16, "AB" * 16])
def test_a_nonce_that_could_be_guessed_or_is_none_is_refused(server: Any, nonce: str) -> None:
    answer = server.hash_json(
        {"kind": "tensor", "shm": NOWHERE}, proof={"nonce": nonce, "shm": NOWHERE}
    )
    assert refusal_of(answer) == "invalid-json"


def test_without_the_switch_no_memory_is_looked_at() -> None:
    nonce = secrets.token_bytes(32)
    with serving(shm=False) as server, SharedTensor.create(nonce) as mine:
        proof = {"nonce": nonce.hex(), "shm": mine.handle()}
        answer = server.hash_json({"kind": "bytes", "shm": mine.handle()}, proof=proof)
        assert refusal_of(answer) == "in-place-off"
