"""Handles are checked before they are believed."""

from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash import TransportError
from mmhash.transport import IpcTensor, SharedTensor

VALUES = np.arange(24, dtype=np.float32).reshape(4, 6)
NAME = "mmhash-12-00112233aabbccdd"
LEASE = {"name": NAME, "slot": 0, "generation": 1}


# By what is changed in a good handle; None takes the field away.
WRONG: list[dict[str, Any]] = [
    {"version": 2},
    {"transport": "cuda_ipc"},
    {"host": "5f0ad3a1-0000-0000-0000-000000000000"},
    {"name": None},
    {"name": "../etc/passwd"},
    {"name": "psm_12ab34cd"},
    {"offset": -1},
    {"offset": 1.0},
    {"offset": (1 << 63) - 50},
    {"nbytes": 95},
    {"nbytes": "96"},
    {"dtype": "float33"},
    {"dtype": "float64"},
    {"shape": "46"},
    {"shape": [4, 7]},
    {"shape": [-4, -6]},
    {"lease": {}},
    {"lease": LEASE | {"slot": -1}},
    {"lease": LEASE | {"more": 1}},
    {"device": 0},
]


@pytest.fixture
def good() -> Any:
    with SharedTensor.create(VALUES) as shared:
        yield shared.handle()


@pytest.mark.parametrize("change", WRONG, ids=lambda change: repr(change)[:60])
def test_a_wrong_handle_is_refused(good: dict[str, Any], change: dict[str, Any]) -> None:
    wrong = {name: value for name, value in (good | change).items() if value is not None}
    assert np.array_equal(SharedTensor.open(good).array(), VALUES)
    with pytest.raises(TransportError):
        SharedTensor.open(wrong).array()


@pytest.mark.parametrize("what", [None, [], "{}", b"{}", 7, {}, {"name": NAME}])
def test_other_values_are_refused_as_handles(what: object) -> None:
    for kind in (SharedTensor, IpcTensor):
        with pytest.raises(TransportError):
            kind.open(what)


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
