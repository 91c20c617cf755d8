"""`process_*`: the sum over a process and those below it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmhash_service.telemetry import processes
from mmhash_service.telemetry.processes import ProcessTree

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

# A process of its own, because those below this one come and go with other tests. At each line it
# starts a child that computes for 0.3 s, or ends that child.
_PARENT = """
import subprocess, sys
busy = "import time\\nwhile time.process_time() < 0.3: pass\\nprint(flush=True); input()"
print(flush=True)
input()
child = subprocess.Popen(
    [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
child.stdout.readline()
print(flush=True)
input()
child.communicate(b"\\n")
print(flush=True)
input()
"""


def values() -> dict[str, float]:
    return {
        sample.name: sample.value for metric in ProcessTree().collect() for sample in metric.samples
    }


def test_a_child_counts_while_it_runs_and_its_time_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert processes._root() == os.getpid()
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        monkeypatch.setattr(processes, "_root", lambda: parent.pid)

        def next_values() -> dict[str, float]:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "\n"
            seen = values()
            assert parent.stdin is not None
            parent.stdin.write("\n")
            parent.stdin.flush()
            return seen

        before, during, after = (next_values() for _ in range(3))
    assert [seen["mmhash_processes"] for seen in (before, during, after)] == [1, 2, 1]
    assert during["process_resident_memory_bytes"] > before["process_resident_memory_bytes"]
    cpu = "process_cpu_seconds_total"
    # Each of two processes has two times in whole ticks of 10 ms.
    assert before[cpu] + 0.25 < during[cpu] < after[cpu] + 0.045
    assert after["process_start_time_seconds"] == pytest.approx(
        before["process_start_time_seconds"], abs=1
    )
