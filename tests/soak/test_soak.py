"""Short soaks, and that a soak can fail; SOAK_SECONDS=600 for a judgement of memory."""

import os
import random
import subprocess
import sys

import pytest

from tests.soak.measure import second_half
from tests.soak.run import Outcome, failures_of
from tests.support.redis import BINARY, NEEDED


@pytest.mark.slow
@pytest.mark.skipif(BINARY is None, reason=NEEDED)
@pytest.mark.timeout(1800)
def test_under_load_and_faults_every_request_is_answered_and_right() -> None:
    seconds = float(os.environ.get("SOAK_SECONDS", "30"))
    command = [sys.executable, "-m", "tests.soak", "--minutes", str(seconds / 60)]
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
