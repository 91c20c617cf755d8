"""Images that make the decoders take all the memory of the host, several at once, and unread answers.

Each decoder's address space is limited by `max_pixels`; the sum is in docs/settings.md.
"""

import os
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from typing import Self

import httpx
import pytest
from PIL import Image

from tests.attacks.test_unread_answers import ask_for_blocks
from tests.support.processes import children_of
from tests.support.victim import serving
from tests.support.waiting import wait_until

MAX_PIXELS = 16 << 20
MAX_HELD = 32 << 20
DECODERS = 2
MEMO = 4 << 20
MIB = 1 << 20

# The sum of docs/settings.md, for one process.
BOUND = 192 * MIB + MEMO + 5 * MAX_HELD + (DECODERS + 1) * (192 * MIB + 20 * MAX_PIXELS)


def tree(pid: int) -> list[int]:
    """The process and all below it."""
    found = [pid]
    for parent in found:
        found += children_of(parent)
    return found


def memory_of(pid: int) -> int:
    """The proportional memory of the process and all below it."""
    total = 0
    for child in tree(pid):
        try:
            lines = Path(f"/proc/{child}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


class Watch:
    """The most memory that a process and those below it had at once."""

    def __init__(self, pid: int) -> None:
        self._pid, self._end = pid, Event()
        self.peak = 0
        self._thread = Thread(target=self._look)

    def _look(self) -> None:
        while not self._end.is_set():
            self.peak = max(self.peak, memory_of(self._pid))
            time.sleep(0.02)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def webp(number: int) -> bytes:
    body = BytesIO()
    Image.new("RGBA", (4096, 4095 - number), (number, 2, 3, 4)).save(body, "WEBP", lossless=True)
    return body.getvalue()


def cmyk(number: int) -> bytes:
    body = BytesIO()
    Image.new("CMYK", (4096, 4095 - number)).save(body, "JPEG", progressive=True, subsampling=0)
    return body.getvalue()


def tile(number: int) -> bytes:
    """A TIFF of 16x16 pixels in one deflated tile of 4000x4000."""
    blob = zlib.compress(bytes([number]) * 16_000_000)
    entries = [
        *((256, 4, 1, 16), (257, 4, 1, 16), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1)),
        *((277, 3, 1, 1), (322, 4, 1, 4000), (323, 4, 1, 4000), (324, 4, 1, 8)),
        (325, 4, 1, len(blob)),
    ]
    blob += b"\0" * (len(blob) % 2)
    directory = struct.pack("<H", len(entries))
    directory += b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 8 + len(blob)) + blob + directory + bytes(4)


def markers(number: int) -> bytes:
    """A JPEG of empty markers, of which Pillow keeps each as an object."""
    return b"\xff\xd8" + b"\xff\xe1\0\2" * (1_000_000 + number) + b"\xff\xd9"


def raw(number: int) -> bytes:
    """A TIFF as long as it can be sent, for its own bytes count too."""
    body = BytesIO()
    Image.new("L", (2800, 2700 - number), number).save(body, "TIFF")
    return body.getvalue()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
def test_all_processes_together_stay_below_the_documented_sum() -> None:
    bodies = [
        (kind, make(number))
        for number in range(3)
        for kind, make in [
            *(("webp", webp), ("jpeg", cmyk), ("tiff", tile)),
            *(("jpeg", markers), ("tiff", raw)),
        ]
    ]
    settings = {
        "max_pixels": MAX_PIXELS,
        "max_held_bytes": MAX_HELD,
        "max_body_bytes": MAX_HELD,
        "decoders": DECODERS,
        "memo_bytes": MEMO,
    }
    with (
        serving(**settings) as server,
        Watch(server.process.pid) as watch,
        ExitStack() as readers,
    ):
        # Answers of 13 MB, of which only the first bytes are read: until no more fit.
        statuses = {readers.enter_context(ask_for_blocks(server)).recv(12) for _ in range(6)}
        assert statuses == {b"HTTP/1.1 200", b"HTTP/1.1 429"}
        url = server.client.base_url.join("/hash?of=pixels")

        def send(kind: str, body: bytes) -> int:
            headers = {"content-type": f"image/{kind}"}
            return httpx.post(url, content=body, headers=headers, timeout=60).status_code

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda body: send(*body), bodies))
        # One that was ended is being replaced.
        wait_until(lambda: len(tree(server.process.pid)) == DECODERS + 2, pause_s=0.05)
    assert set(answers) <= {200, 413, 422, 429, 503}
    assert 200 in answers
    print(f"peak {watch.peak / MIB:.0f} MiB of {BOUND / MIB:.0f}, {os.cpu_count()} cores")
    assert watch.peak < BOUND
