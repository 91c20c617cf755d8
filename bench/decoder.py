"""Measures what decoding in separate processes costs, and how image bombs delay other requests.

The load comes from the same machine.
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

from bench.support.measure import Row, report
from bench.support.servers import serving
from mmhash.cpu import hash_bytes
from mmhash.image import FORMATS, read_image, read_orientation
from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.limits.malloc import tune_malloc
from mmhash_service.limits.threads import ThreadPool
from mmhash_service.memo.entries import Pixels
from mmhash_service.settings import Settings

_BOMBS = 8
_REQUESTS = 400
_PAIRS = 200

_JSON = json.dumps(
    {"items": [{"kind": "bytes", "data": base64.b64encode(bytes(3000)).decode()}]}
).encode()


def bomb(number: int) -> bytes:
    """Return a progressive JPEG of thousands of scans, which uses up its decoder's time limit."""
    body = BytesIO()
    Image.new("L", (4000, 1000 + 8 * number), 100).save(body, "JPEG", progressive=True)
    whole = body.getvalue()
    scan = whole[whole.rfind(b"\xff\xda") : -2]
    return whole[:-2] + scan * 3000 + b"\xff\xd9"


class Client:
    """A keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def send(self, method: str, path: str, body: bytes | None, kind: str) -> int:
        """Send a request. Return the status of the response."""
        self._connection.request(method, path, body, {"Content-Type": kind})
        response = self._connection.getresponse()
        response.read()
        return response.status


def milliseconds(port: int) -> tuple[list[float], list[float]]:
    """Return the times of `/ready` and of a JSON request, sent in turns."""
    client = Client(port)
    ready: list[float] = []
    hashed: list[float] = []
    for _ in range(_REQUESTS):
        for times, request in (
            (ready, ("GET", "/ready", None, "")),
            (hashed, ("POST", "/hash", _JSON, "application/json")),
        ):
            start = time.perf_counter()
            status = client.send(*request)
            times.append((time.perf_counter() - start) * 1e3)
            assert status == 200, status
        time.sleep(0.005)
    return ready, hashed


def p99(times: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(times, n=100)[98]


def latency() -> list[Row]:
    """Time other requests while eight bombs are in flight, and while there are none."""
    with serving() as server:
        calm = milliseconds(server.port)
        stop = Event()

        def attack(number: int) -> int:
            client, sent = Client(server.port), 0
            while not stop.is_set():
                # Each image is different, because the service decodes equal images once.
                body = bomb(number) + b"%d %d" % (number, sent)
                client.send("POST", "/hash?of=pixels", body, "image/jpeg")
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
        for name, statistic, target in (("p50", statistics.median, ""), ("p99", p99, "< 200 ms")):
            times = statistic(after), statistic(before)
            label = f"{what}, {name}, eight bombs in flight"
            rows.append(Row(label, times[0], "ms", "no bombs", times[1], target=target))
    return rows


def in_a_thread(body: bytes) -> Pixels:
    """Decode in the service's own process, without a decoder process."""
    with Image.open(BytesIO(body), formats=FORMATS) as image:
        frames, pixels, extra = read_image(image, max_pixels=1 << 27)
        orientation = read_orientation(image)
    data = memoryview(pixels)
    return Pixels(frames, len(data), hash_bytes(data, "blake3"), extra, orientation)


def photo() -> bytes:
    """Return a JPEG of 1280x720 pixels that has about as many bytes as a photo."""
    body = BytesIO()
    noise = Image.effect_noise((1280, 720), 24)
    gradient = Image.linear_gradient("L").resize((1280, 720))
    Image.merge("RGB", (gradient, noise, Image.blend(gradient, noise, 0.3))).save(
        body, "JPEG", quality=85
    )
    return body.getvalue()


def cache_miss() -> list[Row]:
    """Decode images one after another, in a process and in a thread in turns."""

    async def main() -> tuple[list[float], list[float]]:
        settings = Settings()
        pool, work = DecoderPool(settings), ThreadPool(60.0)
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
    figures = []
    for name, statistic in (("median", statistics.median), ("least", min)):
        ours, peer = statistic(new), statistic(old)
        what = f"1280x720 JPEG, cache miss, {name}"
        figures.append(Row(what, ours, "ms", "in a thread", peer, peer / ours, ">= 0.91"))
    return figures


if __name__ == "__main__":
    report("decoder", [*cache_miss(), *latency()])
