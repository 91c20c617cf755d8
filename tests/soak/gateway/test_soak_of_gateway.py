"""A short soak of the gateway; SOAK_SECONDS=600 for a judgement of its memory."""

import os
import subprocess
import sys

import pytest

from tests.support.redis import BINARY, NEEDED

pytestmark = pytest.mark.slow

# Shorter ones have the faults on top of each other.
SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))


@pytest.mark.skipif(BINARY is None, reason=NEEDED)
@pytest.mark.timeout(SECONDS * 2 + 600)
def test_every_reply_is_right_and_no_request_is_lost_under_faults() -> None:
    command = [sys.executable, "-m", "tests.soak.gateway", "--minutes", str(SECONDS / 60)]
    soak = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(soak.stdout)
    assert soak.returncode == 0
    assert soak.stdout.endswith("good\n")
