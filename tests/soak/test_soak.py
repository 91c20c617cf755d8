"""Short soaks, and that a soak can fail; SOAK_SECONDS=600 for a judgement of memory."""

import math
import os
import random
import subprocess
import sys

import pytest

from tests.soak.gateway import nobody_could_answer
from tests.soak.measure import second_half
from tests.soak.run import Outcome, failures_of
from tests.support.redis import BINARY, NEEDED

# Shorter ones have the gateway's faults on top of each other.
SECONDS = {"tests.soak": 30.0, "tests.soak.gateway": 120.0}


@pytest.mark.slow
@pytest.mark.skipif(BINARY is None, reason=NEEDED)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("module", SECONDS)
def test_under_load_and_faults_every_request_is_answered_and_right(module: str) -> None:
    seconds = float(os.environ.get("SOAK_SECONDS", SECONDS[module]))
    command = [sys.executable, "-m", module, "--minutes", str(seconds / 60)]
    soak = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(soak.stdout)
    assert soak.returncode == 0
    assert soak.stdout.endswith("good\n")


def test_a_wrong_a_lost_and_an_unanswered_kind_fail_the_run() -> None:
    right = Outcome("octets", "right", 0.0, 0.01, 0)
    assert failures_of([right, right._replace(verdict="cancelled")]) == []
    for bad in ("wrong", "lost"):
        assert len(failures_of([right, right._replace(verdict=bad)])) == 1
    never = right._replace(kind="pad", verdict="cancelled")
    assert failures_of([right, never]) == ["no answer to pad"]


@pytest.mark.parametrize(
    ("growth", "noise", "is_flat"), [(0, 2, True), (5, 2, True), (0, 80, True), (25, 2, False)]
)
def test_a_leak_is_not_flat(growth: float, noise: float, is_flat: bool) -> None:
    draw = random.Random(0)
    samples = [200 + growth * at / 600 + draw.gauss(0, noise) for at in range(600)]
    assert second_half(samples).is_flat == is_flat


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([], [], False),
        ([(5.0, 20.0)], [(8.0, math.inf)], True),
        ([(0.0, 4.0)], [(12.0, 20.0)], False),  # one after the other
        ([(0.0, 9.0)], [(10.5, 20.0)], True),  # the first is up, but not yet noticed
        ([(30.0, 40.0)], [(30.0, 40.0)], False),
    ],
)
def test_a_refusal_counts_while_a_worker_is_up(
    first: list[tuple[float, float]], second: list[tuple[float, float]], expected: bool
) -> None:
    assert nobody_could_answer([first, second], 10.0, 15.0) is expected
