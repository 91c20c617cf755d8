# ruff: noqa: ASYNC110, ASYNC240, PTH115  (what it waits for are processes, by /proc)
"""The pool of decoder processes: keys, queue order, replacement, and what a process may do."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mmhash_service.decoder import pool
from mmhash_service.decoder.child import DecoderProcess
from mmhash_service.decoder.images import decode_image
from mmhash_service.decoder.messages import Decoded, Deferred, Hello, Refused
from mmhash_service.decoder.pool import DecoderPool, decoder_count, pixels_of
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from tests.support.decoders import children, run_with_pool, state, wait_until_ready
from tests.support.waiting import wait_until

CORPUS = Path(__file__).parents[3] / "fuzz" / "corpus" / "image"


def problem_of(error: BaseException) -> str:
    assert isinstance(error, Problem), error
    return error.name


def test_a_process_without_files_decodes_what_one_with_files_does() -> None:
    """Nothing is left to import or to open once a process has given up its privileges."""
    bodies = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    bodies += [body[: len(body) * 2 // 3] for body in bodies]

    async def decode(pool: DecoderPool) -> list[Any]:
        return await asyncio.gather(
            *(pool.decode(memoryview(body), "blake3") for body in bodies), return_exceptions=True
        )

    for body, answer in zip(bodies, run_with_pool(decode), strict=True):
        expected = decode_image(body, "blake3", Settings().max_pixels)
        if isinstance(expected, Refused):
            assert problem_of(answer) == expected.problem
        else:
            assert answer == pixels_of(expected, "blake3")


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        (signal.SIGSEGV, "damaged-media"),
        pytest.param(signal.SIGBUS, "damaged-media", marks=pytest.mark.slow),
        pytest.param(signal.SIGABRT, "damaged-media", marks=pytest.mark.slow),
        pytest.param(signal.SIGPROF, "costly-media", marks=pytest.mark.slow),
        # Not the image's fault: another process decodes it.
        (signal.SIGKILL, ""),
        pytest.param(signal.SIGTERM, "", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_ends_ends_one_job_and_is_replaced(
    photo: bytes, stopped: list[int], number: signal.Signals, problem: str
) -> None:
    async def crash(pool: DecoderPool) -> None:
        assert len(children()) == 2
        job = asyncio.create_task(pool.decode(memoryview(photo), "blake3"))
        while not stopped:
            await asyncio.sleep(0.01)
        assert not job.done()
        os.kill(stopped[0], number)
        os.kill(stopped[0], signal.SIGCONT)
        (answer,) = await asyncio.gather(job, return_exceptions=True)
        again = [await pool.decode(memoryview(photo), "blake3") for _ in range(4)]
        assert len(set(again)) == 1
        if problem:
            assert problem_of(answer) == problem
        else:
            assert answer == again[0]
        await wait_until_ready(pool)
        while len(children()) < 2:
            await asyncio.sleep(0.01)
        assert stopped[0] not in children()

    run_with_pool(crash, timeout_s=60.0)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The id of the process that got the first job, once it has: it is stopped, and cannot answer."""
    pids: list[int] = []
    run = DecoderProcess.run

    async def stop_and_run(process: DecoderProcess, job: Any, body: memoryview) -> Any:
        if not pids:
            os.kill(process.pid, signal.SIGSTOP)
            pids.append(process.pid)
        return await run(process, job, body)

    monkeypatch.setattr(DecoderProcess, "run", stop_and_run)
    return pids


def test_a_process_that_was_killed_while_idle_costs_no_job(photo: bytes) -> None:
    async def kill(pool: DecoderPool) -> None:
        for _ in range(2):
            killed = children()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            while any(state(pid) != "Z" for pid in killed):
                await asyncio.sleep(0.01)
            first = await asyncio.gather(
                *(pool.decode(memoryview(photo), "blake3") for _ in range(4))
            )
            assert len(set(first)) == 1

    run_with_pool(kill)


async def wait_until_replaced(pool: DecoderPool, pid: int) -> None:
    """Wait until another process runs in the place of one, which was awaited."""
    while pid in children() or len(children()) < 2:
        await asyncio.sleep(0.01)
    await wait_until_ready(pool)


def test_a_job_that_is_not_done_in_time_ends_with_its_process(
    photo: bytes, stopped: list[int]
) -> None:
    async def late(pool: DecoderPool) -> None:
        with pytest.raises(Problem) as caught:
            await pool.decode(memoryview(photo), "blake3")
        assert caught.value.name == "too-slow"
        await wait_until_replaced(pool, stopped[0])

    run_with_pool(late, timeout_s=0.4)


def test_a_process_confines_itself() -> None:
    async def look(pool: DecoderPool) -> list[tuple[int, str, str]]:
        return [
            (
                pid,
                Path(f"/proc/{pid}/status").read_text(),
                Path(f"/proc/{pid}/limits").read_text(),
            )
            for pid in children()
        ]

    for _, status, limits in run_with_pool(look):
        assert "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        assert "Threads:\t1" in status
        for name in ("core file size", "processes", "file size"):
            assert f"Max {name}" in limits
            line = next(line for line in limits.splitlines() if line.startswith(f"Max {name}"))
            assert line.split()[-3:-1] == ["0", "0"] or line.split()[-2:] == ["0", "0"], line


def test_a_process_has_no_secret_and_no_descriptor_of_the_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MMHASH_TAG_SECRETS", f'["{"33" * 32}"]')
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)

        async def look(pool: DecoderPool) -> list[tuple[bytes, list[str]]]:
            return [
                (
                    Path(f"/proc/{pid}/environ").read_bytes(),
                    [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()],
                )
                for pid in children()
            ]

        for environment, links in run_with_pool(look):
            assert b"3333" not in environment
            kinds = sorted(link.partition(":")[0] for link in links)
            # Debian's libffi keeps itself open.
            assert [kind for kind in kinds if "/libffi.so" not in kind] == [
                *["/dev/null"] * 3,
                "socket",
            ]


CONFINED = """
import ctypes, mmap, os, signal, socket, sys, threading, traceback
from mmhash_service.decoder import sandbox
assert sandbox.enter(sandbox.address_space() + (64 << 20)) == ""
def refused(what):
    try:
        what()
    except (OSError, RuntimeError, MemoryError):
        return
    print("allowed", what)
refused(lambda: open("/etc/passwd"))
refused(lambda: os.listdir("/"))
refused(lambda: os.stat("/etc/passwd"))
refused(lambda: socket.socket())
refused(lambda: socket.socket(socket.AF_UNIX))
refused(lambda: socket.socketpair())
refused(os.fork)
refused(lambda: os.execv("/bin/true", ["true"]))
refused(lambda: os.kill(os.getppid(), 0))
refused(lambda: os.kill(os.getpid(), 9))
refused(lambda: os.memfd_create("x"))
refused(lambda: threading.Thread(target=print).start())
refused(lambda: os.setuid(0))
refused(lambda: os.pidfd_open(os.getppid()))
refused(lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC))
refused(lambda: mmap.mmap(-1, 128 << 20))
refused(lambda: bytearray(128 << 20))
import resource
refused(lambda: resource.prlimit(os.getppid(), resource.RLIMIT_AS))
try:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 50, 1 << 50))
except (ValueError, OSError):
    pass
print("end")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
def test_a_confined_process_opens_starts_and_signals_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", CONFINED], capture_output=True, text=True, check=True
    )
    assert done.stdout == "end\n"


def test_processes_end_with_the_service(tmp_path: Path) -> None:
    program = """
import asyncio, os
from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.memo.memo import Memo
from mmhash_service.settings import Settings
async def main():
    pool = DecoderPool(Settings(decoders=1))
    await pool.is_ready()
    os.system("ps -o pid= --ppid %d > /dev/null 2>&1" % os.getpid())
    print(os.getpid(), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        decoders = path.read_text().split()
        assert len(decoders) == 2
        process.kill()
    wait_until(
        lambda: all(state(int(pid)) == "Z" for pid in decoders),
        "a decoder outlives its service",
        seconds=60,
    )


@pytest.mark.parametrize(
    "answer",
    [
        Hello(),
        Deferred(1.0),
        Decoded(1, 1, bytes(31), b""),
        Decoded(1, 1, bytes(16), b""),
    ],
)
def test_a_malformed_answer_is_refused(answer: Any) -> None:
    with pytest.raises(Problem) as caught:
        pixels_of(answer, "blake3")
    assert caught.value.name == "decoder-failed"


def test_cores_are_divided_among_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, workers, expected in [(1, 1, 1), (4, 1, 4), (4, 3, 1), (4, 8, 1), (64, 2, 8)]:
        monkeypatch.setattr(pool, "cpu_count", lambda cores=cores: cores)
        assert decoder_count(Settings(processes=workers)) == expected
    assert decoder_count(Settings(decoders=40)) == 40
