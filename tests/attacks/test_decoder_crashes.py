"""An image that crashes its decoder, and with it the service or other users' requests.

A decoder is a process of its own: its end is one request's problem, and another takes its place.
"""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import mmhash


def decoders_of(pid: int) -> list[int]:
    """The running decoders of a service."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, path.read_text().split())
    return [child for child in found if runs(child)]


def runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def cpu_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


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
def test_a_crash_ends_one_request(
    server: Any, items_of: Any, number: signal.Signals, status: int
) -> None:
    assert server.client.get("/ready").status_code == 200
    while len(before := decoders_of(server.process.pid)) < 2:
        time.sleep(0.01)
    assert len(before) >= 2
    url = server.client.base_url.join("/hash?of=pixels")
    ticks = {pid: cpu_ticks(pid) for pid in before}
    with ThreadPoolExecutor(1) as threads:
        # A comment makes each body another: the service decodes equal images once.
        body = slow_jpeg() + bytes([number, status & 0xFF])
        headers = {"content-type": "image/jpeg"}
        victim = threads.submit(httpx.post, url, content=body, headers=headers, timeout=60)
        while (busy := max(before, key=lambda pid: cpu_ticks(pid) - ticks[pid])) and cpu_ticks(
            busy
        ) - ticks[busy] < 10:
            assert not victim.done(), victim.result().text
            time.sleep(0.005)
        os.kill(busy, number)
        answer = victim.result()
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    for color in range(4):
        (item,) = items_of(server.hash(photo(color), "image/png", of="pixels"))
        with Image.open(BytesIO(photo(color))) as image:
            assert item["key"] == mmhash.key(image).hex()


def test_decoders_that_were_all_killed_are_replaced(server: Any, items_of: Any) -> None:
    for color in range(10, 13):
        killed = decoders_of(server.process.pid)
        for pid in killed:
            with suppress(ProcessLookupError):  # it ended with another one
                os.kill(pid, signal.SIGKILL)
        while set(killed) & set(decoders_of(server.process.pid)):
            time.sleep(0.001)
        items_of(server.hash(photo(color), "image/png", of="pixels"))
        assert server.client.get("/ready").status_code == 200


def test_decoders_end_with_the_service(serving: Any) -> None:
    with serving() as server:
        assert server.client.get("/ready").status_code == 200
        decoders = decoders_of(server.process.pid)
        assert decoders
    server.process.wait()
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in decoders):
        assert time.monotonic() < until, "a decoder outlives its service"
        time.sleep(0.01)
