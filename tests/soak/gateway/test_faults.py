"""A soak of the gateway can fail: by a refusal while a worker was up."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.soak.gateway.faults import Faults


def faults(*down: list[tuple[float, float]]) -> Any:
    one = object.__new__(Faults)
    one._environment = SimpleNamespace(workers=[SimpleNamespace(down=times) for times in down])
    return one


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([], [], False),
        ([(5.0, 20.0)], [], False),
        ([(5.0, 20.0)], [(8.0, math.inf)], True),
        ([(0.0, 4.0)], [(12.0, 20.0)], False),  # one after the other
        ([(0.0, 9.0)], [(10.5, 20.0)], True),  # the first is up, but not yet noticed
        ([(11.0, 20.0)], [(12.0, 13.0)], True),
        ([(30.0, 40.0)], [(30.0, 40.0)], False),
    ],
)
def test_a_refusal_counts_while_a_worker_is_up(
    first: list[tuple[float, float]], second: list[tuple[float, float]], expected: bool
) -> None:
    assert faults(first, second).nobody_could_answer(10.0, 15.0) is expected
