"""The program of a worker: it imports only what its shards need."""

import subprocess
import sys


def test_files_are_hashed_without_numpy() -> None:
    program = (
        "import sys, mmhash.bulk.worker; from mmhash.bulk.work import Options, hash_files;"
        "(row,) = hash_files([sys.executable], Options()); assert row[-1] is None, row;"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
