"""Buffers of the usual size are reused; larger ones are returned to the system."""

import ctypes
import subprocess
import sys

import pytest

COUNT = """
import resource
from mmhash_service.limits.malloc import tune_malloc
tune_malloc()
for size in (256 << 10, 3 << 20, 8 << 20):
    for _ in range(60):
        b"x" * size
        if _ == 9:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another malloc")
def test_only_large_blocks_have_pages_of_their_own() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    piece, image, large = map(int, done.stdout.split())
    assert piece < 50  # of 50 blocks, of 64 pages each
    assert image < 50
    assert large >= 50
