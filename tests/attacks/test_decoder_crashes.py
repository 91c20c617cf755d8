"""An image that crashes its decoder, and with it the service or other users' requests.

A decoder is a process of its own: its end is one request's problem, and another takes its place.
"""

import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import mmhash
from tests.support.decoders import cpu_ticks, state, wait_for_ready
from tests.support.processes import children_of
from tests.support.responses import items_of
from tests.support.victim import serving
from tests.support.waiting import wait_until


def decoders_of(pid: int) -> list[int]:
    """The running decoders of a service."""
    return [child for child in children_of(pid) if state(child) != "Z"]


def has_started(pid: int) -> bool:
    """Return True if a decoder has given up its privileges: before, it computes without an image."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()
    return False


def stop_busy(pids: list[int], request: "Future[httpx.Response]") -> int:
    """Stop the decoder that works on the request; return 0 if it has ended before."""
    ticks = {pid: cpu_ticks(pid) for pid in pids}
    while not request.done():
        for pid in pids:
            if cpu_ticks(pid) >= ticks[pid] + 10 and state(pid) != "Z":
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                while (reached := state(pid)) not in {"T", "Z"}:
                    time.sleep(0.001)
                return pid if reached == "T" else 0
        time.sleep(0.005)
    return 0


def slow_jpeg() -> bytes:
    body = BytesIO()
    Image.new("L", (640, 480), 100).save(body, "JPEG", progressive=True)
    whole = body.getvalue()
    scan = whole[whole.rfind(b"\xff\xda") : -2]
    return whole[:-2] + scan * 20_000 + b"\xff\xd9"


def photo(number: int) -> bytes:
    body = BytesIO()
    Image.new("RGB", (64, 48), (number, 2, 3)).save(body, "PNG")
    return body.getvalue()


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc"),
]


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGSEGV, 422),
        (signal.SIGBUS, 422),
        (signal.SIGABRT, 422),
        (signal.SIGFPE, 422),
        # Killed by another: tried once more, and then it is only too costly.
        (signal.SIGKILL, 422),
    ],
)
def test_a_crash_ends_one_request(server: Any, number: signal.Signals, status: int) -> None:
    url = server.client.base_url.join("/hash?of=pixels")
    headers = {"content-type": "image/jpeg"}
    with ThreadPoolExecutor(1) as threads:
        busy, attempt = 0, 0
        while not busy:  # the limit of its cost may end it before this process looks
            wait_for_ready(server.client)
            while len(before := [*filter(has_started, decoders_of(server.process.pid))]) < 2:
                time.sleep(0.01)
            # A comment makes each body another: the service decodes equal images once.
            body = slow_jpeg() + bytes([number, attempt])
            victim = threads.submit(httpx.post, url, content=body, headers=headers, timeout=60)
            busy = stop_busy(before, victim)
            attempt += 1
        os.kill(busy, number)
        os.kill(busy, signal.SIGCONT)
        answer = victim.result()
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    for color in range(4):
        (item,) = items_of(server.hash(photo(color), "image/png", of="pixels"))
        with Image.open(BytesIO(photo(color))) as image:
            assert item["key"] == mmhash.key(image).hex()


def test_decoders_that_were_all_killed_are_replaced(server: Any) -> None:
    for color in range(10, 13):
        killed = decoders_of(server.process.pid)
        for pid in killed:
            with suppress(ProcessLookupError):  # it ended with another one
                os.kill(pid, signal.SIGKILL)
        while set(killed) & set(decoders_of(server.process.pid)):
            time.sleep(0.001)
        items_of(server.hash(photo(color), "image/png", of="pixels"))
        wait_for_ready(server.client)


def test_decoders_end_with_the_service() -> None:
    with serving() as server:
        wait_for_ready(server.client)
        decoders = decoders_of(server.process.pid)
        assert decoders
    server.process.wait()
    wait_until(
        lambda: all(state(pid) == "Z" for pid in decoders),
        "a decoder outlives its service",
        seconds=60,
    )
