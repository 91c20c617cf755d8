import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

import mmhash
from mmhash import Hasher, InputError, cpu, states

# Enough for two shares of an xxh3 tree.
BIG = np.random.default_rng(7).integers(0, 256, 2 * states.XXH3_SHARE + 4321, dtype=np.uint8)


@pytest.mark.parametrize("threads", [None, 1, 2, 3, 64])
@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_threads_do_not_change_the_digest(algorithm: str, threads: int | None) -> None:
    one = mmhash.digest(BIG, algorithm=algorithm, threads=1)
    assert mmhash.digest(BIG, algorithm=algorithm, threads=threads) == one


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_threads_is_a_number_from_one(threads: int) -> None:
    with pytest.raises(InputError, match="threads"):
        mmhash.digest(b"", threads=threads)


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_hasher_behaves_like_hashlib(algorithm: str) -> None:
    hasher = Hasher(algorithm)
    assert hasher.name == algorithm
    assert hasher.digest_size == len(hasher.digest())
    hasher.update(b"ab")
    twin = hasher.copy()
    twin.update(b"c")
    assert hasher.hexdigest() == mmhash.digest(b"ab", algorithm=algorithm).hex()
    assert twin.digest() == mmhash.digest(b"abc", algorithm=algorithm).bytes
    assert twin.digest() == twin.digest()


def test_hasher_refuses_a_str_and_keeps_its_state() -> None:
    hasher = Hasher().update(b"abc")
    with pytest.raises(InputError, match="encode"):
        hasher.update("def")
    assert hasher.digest() == blake3(b"abc").digest()


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_many_threads_at_once(algorithm: str) -> None:
    expected = mmhash.digest(BIG, algorithm=algorithm, threads=1)
    found: list[mmhash.Digest] = []
    workers = [
        threading.Thread(target=lambda: found.append(mmhash.digest(BIG, algorithm=algorithm)))
        for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [expected] * 8


USE_THREADS_AGAIN = """
import os, sys
from blake3 import blake3
from mmhash.states import blake3_state, use_threads_again

child = os.fork()
if child == 0:
    use_threads_again()
    state = blake3_state(2)
    state.update(bytes(8 << 20))
    os._exit(state.digest() != blake3(bytes(8 << 20)).digest() or len(os.listdir('/proc/self/task')) == 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system is not Linux")
def test_a_forked_child_uses_threads_again_if_its_parent_has_used_none() -> None:
    subprocess.run([sys.executable, "-c", USE_THREADS_AGAIN], check=True, timeout=120)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("max 100000", None),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("400000 100000", 4),
        ("", None),
    ],
)
def test_a_container_s_share_of_the_cores(tmp_path: Path, text: str, share: int | None) -> None:
    cpu_max = tmp_path / "cpu.max"
    cpu_max.write_text(text)
    assert states._cpu_limit(cpu_max) == share
    assert states._cpu_limit(tmp_path / "none") is None
    assert 1 <= cpu.cpu_count() <= len(os.sched_getaffinity(0))
