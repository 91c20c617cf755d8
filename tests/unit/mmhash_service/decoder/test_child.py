"""A decoder process as the service sees it: its start, its end, and malformed messages."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mmhash_service.decoder import child
from mmhash_service.decoder.child import DecoderProcess
from mmhash_service.decoder.messages import Hello


async def started() -> DecoderProcess:
    """A decoder, once it listens."""
    process = DecoderProcess(1000, 1000)
    assert isinstance(await process.receive(), Hello)
    return process


def test_a_child_exits_when_its_connection_is_closed() -> None:
    async def run() -> int:
        process = await started()
        process._connection.close()
        return process._process.wait()

    assert asyncio.run(run()) == 0


def test_a_child_that_does_not_exit_is_killed() -> None:
    async def run() -> tuple[int, int]:
        process = await started()
        os.kill(process.pid, signal.SIGSTOP)  # it must not see the end of the connection first
        return process.pid, await process.end()

    pid, code = asyncio.run(run())
    assert code == -signal.SIGKILL
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_cannot_start_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    make = socket.socketpair

    def note() -> tuple[socket.socket, socket.socket]:
        made.extend(pair := make())
        return pair

    monkeypatch.setattr(socket, "socketpair", note)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        DecoderProcess(1000, 1000)
    # Not by /proc/self/fd: the server of other tests closes idle connections meanwhile.
    assert [one.fileno() for one in made] == [-1, -1]


def test_a_child_gets_no_secret_and_no_python_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").touch()
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{path}")
    monkeypatch.setenv("MMHASH_TENANTS", "secret")

    process = asyncio.run(started())
    variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    asyncio.run(process.end())
    assert f"PYTHONPATH={path}".encode() in variables
    assert not any(one.startswith(b"MMHASH_") for one in variables)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "decoded", "frames": 0, "nbytes": 1, "digest": bytes(32), "extra": b""},
        {"type": "decoded", "frames": 10_001, "nbytes": 1, "digest": bytes(32), "extra": b""},
        {"type": "decoded", "frames": 1, "nbytes": -1, "digest": bytes(32), "extra": b""},
        {"type": "decoded", "frames": 1, "nbytes": 1, "digest": bytes(33), "extra": b""},
        {"type": "decoded", "frames": 1, "nbytes": 1, "digest": "00", "extra": b""},
        {"type": "refused", "problem": "unauthorized", "reason": ""},
        {"type": "refused", "problem": "damaged-media", "reason": "x" * 201},
        {"type": "deferred", "cost_s": float("nan")},
        {"type": "deferred", "cost_s": -1.0},
        {"type": "other"},
        [],
    ],
)
def test_a_message_out_of_bounds_is_refused(message: Any) -> None:
    with pytest.raises(msgspec.DecodeError):
        child._ANSWERS.decode(msgspec.msgpack.encode(message))
