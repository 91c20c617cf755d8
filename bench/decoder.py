"""What decoding in separate processes costs, and what image bombs cost everybody else.

The load comes from the same machine. `python -m bench.decoder` keeps what it finds.
"""

import asyncio
import base64
import http.client
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from threading import Event

from PIL import Image

from bench.http import serving
from bench.measure import Row, report
from mmhash.cpu import hash_bytes
from mmhash.image import FORMATS, read_image
from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.memo.entries import Pixels
from mmhash_service.runtime.worker_pool import WorkerPool
from mmhash_service.server.malloc import tune_malloc
from mmhash_service.settings import Settings

_BOMBS = 8
_REQUESTS = 400
_PAIRS = 200

_JSON = json.dumps(
    {"items": [{"kind": "bytes", "data": base64.b64encode(bytes(3000)).decode()}]}
).encode()


def bomb(number: int) -> bytes:
    """A progressive JPEG of thousands of scans: it takes all the time that its decoder has."""
    body = BytesIO()
    Image.new("L", (4000, 1000 + 8 * number), 100).save(body, "JPEG", progressive=True)
    whole = body.getvalue()
    scan = whole[whole.rfind(b"\xff\xda") : -2]
    return whole[:-2] + scan * 3000 + b"\xff\xd9"


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: bytes | None, kind: str) -> int:
        """The status of the answer."""
        self._connection.request(method, path, body, {"Content-Type": kind})
        response = self._connection.getresponse()
        response.read()
        return response.status


def milliseconds(port: int) -> tuple[list[float], list[float]]:
    """The times of `/ready` and of a JSON request, in turns."""
    client = Client(port)
    ready: list[float] = []
    hashed: list[float] = []
    for _ in range(_REQUESTS):
        for times, request in (
            (ready, ("GET", "/ready", None, "")),
            (hashed, ("POST", "/hash", _JSON, "application/json")),
        ):
            start = time.perf_counter()
            status = client.ask(*request)
            times.append((time.perf_counter() - start) * 1e3)
            assert status == 200, status
        time.sleep(0.005)
    return ready, hashed


def p99(times: list[float]) -> float:
    """The time that one of a hundred exceeds."""
    return statistics.quantiles(times, n=100)[98]


def latency() -> list[Row]:
    """Other requests with eight bombs in flight all the time, beside the same without."""
    with serving() as server:
        calm = milliseconds(server.port)
        stop = Event()

        def attack(number: int) -> int:
            client, sent = Client(server.port), 0
            while not stop.is_set():
                # Each is different: the service decodes equal images once.
                body = bomb(number) + b"%d %d" % (number, sent)
                client.ask("POST", "/hash?of=pixels", body, "image/jpeg")
                sent += 1
            return sent

        with ThreadPoolExecutor(_BOMBS) as threads:
            attackers = [threads.submit(attack, number) for number in range(_BOMBS)]
            time.sleep(1)
            stormy = milliseconds(server.port)
            stop.set()
            sent = sum(attacker.result() for attacker in attackers)
    print(f"{sent} bombs")
    rows = []
    for what, before, after in zip(("/ready", "JSON /hash"), calm, stormy, strict=True):
        for name, of, asked in (("p50", statistics.median, ""), ("p99", p99, "< 200 ms")):
            times = of(after), of(before)
            what_of = f"{what}, {name}, eight bombs in flight"
            rows.append(Row(what_of, times[0], "ms", "no bombs", times[1], asked=asked))
    return rows


def in_a_thread(body: bytes) -> Pixels:
    """The decoding of before, in the service's own process."""
    with Image.open(BytesIO(body), formats=FORMATS) as image:
        frames, pixels, extra = read_image(image, max_pixels=1 << 27, max_frames=10_000)
    data = memoryview(pixels)
    return Pixels(frames, len(data), hash_bytes(data, "blake3"), extra)


def photo() -> bytes:
    """A JPEG of 1280x720 pixels, as long as a photo's."""
    body = BytesIO()
    noise = Image.effect_noise((1280, 720), 24)
    gradient = Image.linear_gradient("L").resize((1280, 720))
    Image.merge("RGB", (gradient, noise, Image.blend(gradient, noise, 0.3))).save(
        body, "JPEG", quality=85
    )
    return body.getvalue()


def cache_miss() -> list[Row]:
    """One image after another, by a decoder process and by a thread, in turns."""

    async def main() -> tuple[list[float], list[float]]:
        settings = Settings()
        pool, work = DecoderPool(settings), WorkerPool(60.0)
        assert await pool.is_ready()
        body = photo()
        view = memoryview(body)
        new: list[float] = []
        old: list[float] = []

        async def by_process() -> Pixels:
            return await pool.decode(view, "blake3")

        async def by_thread() -> Pixels:
            return await work.run(in_a_thread, body)

        ways = [(new, by_process), (old, by_thread)]
        assert await by_process() == await by_thread()
        for pair in range(_PAIRS):
            for times, way in ways if pair % 2 else ways[::-1]:
                start = time.perf_counter()
                await way()
                times.append((time.perf_counter() - start) * 1e3)
        work.stop()
        await pool.close()
        return new, old

    tune_malloc()
    new, old = asyncio.run(main())
    return [
        Row(f"1280x720 JPEG, cache miss, {name}", of(new), "ms", "in a thread", of(old),
            of(old) / of(new), ">= 0.91")
        for name, of in (("median", statistics.median), ("least", min))
    ]  # fmt: skip


if __name__ == "__main__":
    report("decoder", [*cache_miss(), *latency()])
