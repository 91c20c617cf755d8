"""A short soak of the service; SOAK_SECONDS=60 for as long as it takes."""

import os
import subprocess
import sys

import pytest

from tests.support.redis import BINARY, NEEDED

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("SOAK_SECONDS", "30"))


@pytest.mark.skipif(BINARY is None, reason=NEEDED)
@pytest.mark.timeout(SECONDS * 2 + 600)
def test_under_load_and_faults_every_request_is_answered_and_right() -> None:
    command = [sys.executable, "-m", "tests.soak", "--minutes", str(SECONDS / 60)]
    soak = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(soak.stdout)
    assert soak.returncode == 0
    assert soak.stdout.endswith("good\n")
