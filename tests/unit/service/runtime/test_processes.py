"""`process_*`: the sum over this process and those below it."""

import subprocess
import sys
from pathlib import Path

import pytest

from mmhash_service.runtime.processes import ProcessTree

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

_BUSY = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"


def values() -> dict[str, float]:
    return {
        sample.name: sample.value for metric in ProcessTree().collect() for sample in metric.samples
    }


def test_a_child_counts_while_it_runs_and_its_time_afterwards() -> None:
    before = values()
    child = subprocess.Popen(
        [sys.executable, "-c", _BUSY + "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    during = values()
    child.communicate(b"\n")
    after = values()
    assert during["mmhash_processes"] == before["mmhash_processes"] + 1
    assert during["process_resident_memory_bytes"] > before["process_resident_memory_bytes"]
    cpu = "process_cpu_seconds_total"
    assert before[cpu] + 0.25 < during[cpu] <= after[cpu] + 0.02
    assert after["process_start_time_seconds"] == pytest.approx(
        before["process_start_time_seconds"], abs=1
    )
