"""Handles: what they say is believed only where it can be so."""

import json
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash import TransportError
from mmhash.transport import IpcTensor, SharedTensor
from mmhash.transport.handles import host, parse

VALUES = np.arange(24, dtype=np.float32).reshape(4, 6)
DIGEST = str(mmhash.digest(VALUES))
NAME = "mmhash-12-34-00112233aabbccdd"
LEASE = {"name": NAME, "slot": 0, "generation": 1}


class Subclass(int):
    pass


# By what is changed in a good handle; None takes the field away.
FORGED: list[dict[str, Any]] = [
    {"version": 2},
    {"version": True},
    {"version": "1"},
    {"transport": "cuda_ipc"},
    {"transport": ["shm"]},
    {"host": "5f0ad3a1-0000-0000-0000-000000000000"},
    {"name": None},
    {"name": 7},
    {"name": ""},
    {"name": "../etc/passwd"},
    {"name": "/etc/passwd"},
    {"name": "psm_12ab34cd"},
    {"name": NAME + "\n"},
    {"name": NAME + "/../x"},
    {"name": NAME.replace("12", "\uff11\uff12")},
    {"name": "mmhash-0-34-00112233aabbccdd"},
    {"name": "mmhash-" + "9" * 10_000},
    {"name": NAME + "\0"},
    {"offset": -1},
    {"offset": 1.0},
    {"offset": True},
    {"offset": Subclass(0)},
    {"offset": None},
    {"offset": 1 << 63},
    {"offset": (1 << 63) - 50},
    {"offset": 1},
    {"nbytes": 95},
    {"nbytes": -96},
    {"nbytes": None},
    {"nbytes": "96"},
    {"nbytes": 1 << 62, "shape": [1 << 60]},
    {"dtype": "float33"},
    {"dtype": "object"},
    {"dtype": ["float32"]},
    {"dtype": None},
    {"dtype": "float64"},
    {"shape": None},
    {"shape": "46"},
    {"shape": [4, -6]},
    {"shape": [-4, -6]},
    {"shape": [4.0, 6]},
    {"shape": [4, 7]},
    {"shape": [1 << 70, 0], "nbytes": 0},
    {"shape": [1 << 63, 0], "nbytes": 0},
    {"lease": NAME},
    {"lease": {}},
    {"lease": LEASE | {"slot": -1}},
    {"lease": LEASE | {"generation": 0}},
    {"lease": LEASE | {"generation": 1 << 32}},
    {"lease": LEASE | {"name": "../x"}},
    {"lease": LEASE | {"more": 1}},
    {"digests": {}},
    {"digests": [[0, 96]]},
    {"digests": [[0, 97, DIGEST]]},
    {"digests": [[-1, 96, DIGEST]]},
    {"digests": [[90, 7, DIGEST]]},
    {"digests": [[0, 96, DIGEST[:-1]]]},
    {"digests": [[0, 96, b"x"]]},
    {"device": 0},
    {7: 7},
]


@pytest.fixture
def good() -> Any:
    with SharedTensor.create(VALUES) as shared:
        shared.attach_digest(mmhash.digest(VALUES))
        yield shared.handle()


@pytest.mark.parametrize("change", FORGED, ids=lambda change: repr(change)[:60])
def test_a_forged_handle_is_refused(good: dict[str, Any], change: dict[str, Any]) -> None:
    forged = {name: value for name, value in (good | change).items() if value is not None}
    assert np.array_equal(SharedTensor.open(good).array(), VALUES)
    with pytest.raises(TransportError):
        SharedTensor.open(forged).array()


@pytest.mark.parametrize("what", [None, [], "{}", b"{}", 7, {}, {"name": NAME}])
def test_what_is_no_handle_is_refused(what: object) -> None:
    for kind in (SharedTensor, IpcTensor):
        with pytest.raises(TransportError):
            kind.open(what)


def test_a_handle_is_json(good: dict[str, Any]) -> None:
    assert json.loads(json.dumps(good)) == good
    assert parse(good, "shm").document() == good
    assert good == {
        "version": 1, "transport": "shm", "host": host(), "name": good["name"], "offset": 0,
        "nbytes": 96, "dtype": "float32", "shape": [4, 6], "digests": [[0, 96, DIGEST]],
    }  # fmt: skip


def test_five_fields_are_enough(good: dict[str, Any]) -> None:
    few = {name: good[name] for name in ("name", "offset", "nbytes", "dtype", "shape")}
    assert mmhash.key(SharedTensor.open(few)) == mmhash.key(VALUES)


def test_a_slice_of_a_pool_names_its_lease_and_what_it_is() -> None:
    document = {"offset": 0, "nbytes": 96, "dtype": "float32", "shape": [4, 6], "lease": LEASE}
    assert IpcTensor.open(document).shape == (4, 6)
    for field in document:
        with pytest.raises(TransportError):
            IpcTensor.open({name: document[name] for name in document if name != field})
    with pytest.raises(TransportError):
        IpcTensor.open(document | {"name": NAME})
