"""Measures the time that the memo saves for a known image, and latency while Redis fails.

The image is a JPEG of 1280 by 720 pixels and some 200 KB. The benchmark needs redis-server.
"""

import asyncio
import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from io import BytesIO
from itertools import count

import numpy as np
from PIL import Image
from pydantic import SecretStr

from bench.support.measure import Row, medians_of, report
from bench.support.servers import free_port, redis_server, serving
from mmhash.framing import frame
from mmhash.lru import LruCache
from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.items.readers import AlignedHasher
from mmhash_service.memo.memo import Memo, entry_size
from mmhash_service.settings import Settings

SIZE = (1280, 720)
HITS, MISSES, ROW = 200, 60, 15
PHASE_S = 5.0
PIXELS = "/hash?of=pixels"


def photo() -> bytes:
    """Return a JPEG of noise on every scale, like a photo."""
    random = np.random.default_rng(0)
    picture = np.zeros((SIZE[1], SIZE[0], 3), np.float32)
    for octave in range(1, 7):
        coarse = random.random((9 * octave**2, 16 * octave**2, 3), np.float32)
        for channel in range(3):
            fine = Image.fromarray(coarse[..., channel]).resize(SIZE, Image.Resampling.BICUBIC)
            picture[..., channel] += np.asarray(fine) / octave
    picture -= picture.min()
    picture *= 255 / picture.max()
    picture += random.normal(0, 4, (SIZE[1], SIZE[0], 1))
    body = BytesIO()
    Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(body, "JPEG", quality=86)
    return body.getvalue()


PHOTO = photo()
_numbers = count()


def another() -> bytes:
    """Return the same image in other bytes: decoders ignore what follows its end."""
    return PHOTO + next(_numbers).to_bytes(4)


class Client:
    """A connection that sends one request after another."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def post(self, path: str, body: bytes, status: bytes = b"") -> float:
        """Return the milliseconds until the response, after checking the cache status in it."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: image/jpeg\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        start = time.perf_counter()
        self._socket.sendall(head, socket.MSG_MORE if body else 0)
        self._socket.sendall(body)
        response = bytearray()
        while not response.endswith((b"}", b"}\n")):
            response += self._socket.recv(65536)
        taken = (time.perf_counter() - start) * 1e3
        assert response.startswith(b"HTTP/1.1 200 "), response
        assert status in response, response
        return taken


@contextmanager
def service(url: str | None) -> Iterator[int]:
    """Run the service with its memo at a URL. Yield its port."""
    if url is not None:
        os.environ["MMHASH_MEMO_URL"] = url
    try:
        with serving() as server:
            yield server.port
    finally:
        os.environ.pop("MMHASH_MEMO_URL", None)


def median_of_some(call: Callable[[], float]) -> float:
    """Return the median of a few calls in a row."""
    return statistics.median(call() for _ in range(ROW))


def over_http(name: str, url: str | None) -> list[Row]:
    """Compare a hit with a miss, with counting the same body, and with an empty request."""
    with service(url) as port, closing(Client(port)) as client:
        client.post(PIXELS, PHOTO)
        # Send several in a row, because a miss leaves the CPU's caches cold.
        calls = {
            "hit": lambda: median_of_some(lambda: client.post(PIXELS, PHOTO, b'"hit"')),
            "miss": lambda: median_of_some(lambda: client.post(PIXELS, another(), b'"miss"')),
            "read": lambda: median_of_some(lambda: client.post("/count", PHOTO)),
            "empty": lambda: median_of_some(lambda: client.post("/empty", b"")),
        }
        hit, miss, read, empty = medians_of(calls, 9)
    what = f"hit over HTTP, {name}"
    return [
        Row(what, hit, "ms", "miss", miss, miss / hit, ">= 20"),
        Row(what, hit, "ms", "body read and counted", read, read / hit),
        Row(what, hit, "ms", "empty POST", empty, empty / hit),
    ]


def from_another_replica(name: str, url: str) -> Row:
    """Time a hit on an image that another replica decoded."""
    bodies = [another() for _ in range(MISSES)]
    with service(url) as port, closing(Client(port)) as client:
        miss = statistics.median(client.post(PIXELS, body, b'"miss"') for body in bodies)
    with service(url) as port, closing(Client(port)) as client:
        client.post(PIXELS, PHOTO)
        hit = statistics.median(client.post(PIXELS, body) for body in bodies)
    what = f"hit over HTTP, {name}, from another replica"
    return Row(what, hit, "ms", "miss", miss, miss / hit)


def in_process(name: str, url: str | None) -> Row:
    """Compare a hit with a miss, from the body to the key. With a store, the store has the hits."""

    async def main() -> tuple[float, float]:
        settings = Settings(memo_url=None if url is None else SecretStr(url))
        memo, decoders = Memo(settings), DecoderPool(settings)
        await memo.open()
        assert await decoders.is_ready()

        async def milliseconds(body: bytes) -> float:
            start = time.perf_counter()
            stream = AlignedHasher("blake3")
            stream.update(body)
            made = partial(decoders.decode, memoryview(body), "blake3")
            pixels, _ = await memo.pixels(b"", "blake3", stream.digest(), made)
            frame("image", "", (pixels.frames,), pixels.digest, pixels.extra)
            return (time.perf_counter() - start) * 1e3

        misses = [await milliseconds(another()) for _ in range(MISSES)]
        body = another()
        await milliseconds(body)
        await asyncio.sleep(0.2)  # until the entry is in the store
        if url is not None:
            memo._cache = LruCache(0, entry_size)
        hits = [await milliseconds(body) for _ in range(HITS)]
        await memo.close()
        await decoders.close()
        return statistics.median(hits), statistics.median(misses)

    hit, miss = asyncio.run(main())
    return Row(f"hit in the process, {name}", hit, "ms", "miss", miss, miss / hit, ">= 20")


def redis_failures() -> list[Row]:
    """Send known images in 4 of 5 requests while Redis hangs, exits and restarts."""
    port = free_port()
    known = [another() for _ in range(20)]
    times: list[float] = []
    failed: list[Exception] = []
    end = threading.Event()

    def send_requests(service_port: int) -> None:
        try:
            with closing(Client(service_port)) as client:
                for number in count():
                    if end.is_set():
                        return
                    body = another() if number % 5 == 0 else known[number % 20]
                    times.append(client.post(PIXELS, body))
        except (OSError, AssertionError) as error:
            failed.append(error)

    def phase() -> tuple[float, float]:
        times.clear()
        time.sleep(PHASE_S)
        ordered = sorted(times)
        return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]

    phases: dict[str, tuple[float, float]] = {}
    with service(f"redis://127.0.0.1:{port}") as service_port:
        threads = [threading.Thread(target=send_requests, args=(service_port,)) for _ in range(2)]
        with redis_server(port) as redis:
            for thread in threads:
                thread.start()
            time.sleep(1)
            phases["up"] = phase()
            redis.send_signal(signal.SIGSTOP)
            phases["hangs"] = phase()
            redis.send_signal(signal.SIGCONT)
            time.sleep(2)
            redis.kill()
            phases["is down"] = phase()
        with redis_server(port):
            phases["is back"] = phase()
            end.set()
            for thread in threads:
                thread.join()
    p50, p99 = phases.pop("up")
    rows = [Row("failed requests while Redis fails", len(failed), "", target="0")]
    for state, (this_p50, this_p99) in phases.items():
        peer = "while it is up"
        rows += [
            Row(f"p50, Redis {state}", this_p50, "ms", peer, p50, this_p50 / p50),
            Row(f"p99, Redis {state}", this_p99, "ms", peer, p99, this_p99 / p99, "<= 2"),
        ]
    return rows


def rows() -> list[Row]:
    """Measure hits and misses of each store, and what a failing store costs."""
    port = free_port()
    with redis_server(port):
        urls = {
            "memory": None,
            "Redis": f"redis://127.0.0.1:{port}",
        }
        figures = [in_process(name, url) for name, url in urls.items()]
        for name, url in urls.items():
            figures += over_http(name, url)
            if url is not None:
                figures.append(from_another_replica(name, url))
    return [*figures, *redis_failures()]


if __name__ == "__main__":
    print(f"the image has {len(PHOTO)} bytes")
    report("memo", rows())
