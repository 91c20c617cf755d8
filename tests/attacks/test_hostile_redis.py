"""A memo's server that answers anything: memory, time, or a memo that is silently dead.

Replies are bounded before they are read; one that is not right closes its connection and is a miss.
"""

import asyncio
import itertools
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from threading import Event, Thread

import pytest
from PIL import Image
from redis import Redis

import mmhash
from mmhash_service.memo.address import parse_redis_url
from mmhash_service.memo.redis import RedisStore
from tests.support.redis import running_redis
from tests.support.service import TIMEOUT_S
from tests.support.victim import serving

pytestmark = pytest.mark.slow

Reply = bytes | Callable[[socket.socket], None]

# All replies are refused before this time has passed, on a busy machine too.
REPLY_S = 3.0


def endless(piece: bytes, head: bytes = b"") -> Callable[[socket.socket], None]:
    def send(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return send


REPLIES: dict[str, Reply] = {
    "2 GB announced and sent": endless(b"x" * 65536, b"$2000000000\r\n"),
    "2 GB announced, none sent": b"$2000000000\r\n",
    "just over an entry": b"$1100000\r\n" + b"x" * 1_100_000 + b"\r\n",
    "a length of 4000 digits": b"$" + b"9" * 4000 + b"\r\n",
    "a length of 60 000 digits": b"$" + b"9" * 60_000 + b"\r\n",
    "a negative length": b"$-5\r\nabc\r\n",
    "no length": b"$\r\n\r\n",
    "a length that is none": b"$abc\r\n",
    "a longer string than announced": b"$3\r\nabcdef\r\n",
    "a line without an end": endless(b"+" * 65536),
    "an error without an end": endless(b"e" * 65536, b"-ERR "),
    "numbers without an end": endless(b"7" * 65536, b":"),
    "lists in lists": endless(b"*1\r\n" * 1000),
    "a list of a billion": endless(b":1\r\n" * 1000, b"*1000000000\r\n"),
    "a list of empty lists": endless(b"*0\r\n" * 1000, b"*1000000000\r\n"),
    "a list of long strings": endless(b"$60000\r\n" + b"x" * 60000 + b"\r\n", b"*1000000\r\n"),
    "a list": b"*2\r\n$1\r\na\r\n$1\r\nb\r\n",
    "a null list": b"*-1\r\n",
    "a map without an end": endless(b"+a\r\n" * 1000, b"%1000000000\r\n"),
    "a set": b"~1\r\n+a\r\n",
    "a verbatim string of 2 GB": endless(b"x" * 65536, b"=2000000000\r\ntxt:"),
    "a blob error of 2 GB": endless(b"x" * 65536, b"!2000000000\r\n"),
    "a streamed string": endless(b";60000\r\n" + b"x" * 60000 + b"\r\n", b"$?\r\n"),
    "a streamed list": endless(b"+a\r\n" * 1000, b"*?\r\n"),
    "attributes without an end": endless(b"|1\r\n+a\r\n+b\r\n" * 100),
    "pushes without an end": endless(b">1\r\n+a\r\n" * 100),
    "empty pushes": endless(b">0\r\n" * 1000),
    "an invalidation": b">2\r\n$10\r\ninvalidate\r\n*0\r\n",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "zeros": endless(bytes(65536)),
    "a number": b":5\r\n",
    "OK": b"+OK\r\n",
    "an error": b"-ERR no\r\n",
    "loading": b"-LOADING Redis is loading\r\n",
    "an error of bytes": b"-\xff\xfe\x00\r\n",
    "a redirection": b"-MOVED 1 169.254.169.254:80\r\n",
    "two replies": b"$3\r\nabc\r\n$3\r\nabc\r\n",
    "an entry that nobody sealed": b"$80\r\n" + b"x" * 80 + b"\r\n",
    "nothing, and the end": b"",
}


class _Hostile:
    """A server that answers as a test says; what redis-py asks for at first it gets."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.connections = 0
        self.lost = 0
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                while asked := connection.recv(65536):
                    if asked.startswith(b"*") and b"GETRANGE" not in asked and b"SET" not in asked:
                        connection.sendall(self.greeting(asked))
                    elif callable(self.reply):
                        self.reply(connection)
                    else:
                        connection.sendall(self.reply)
                        if not self.reply:
                            return
        except OSError:
            pass
        finally:
            self.lost += 1
            self._open.discard(connection)

    def greeting(self, asked: bytes) -> bytes:
        return self.reply if isinstance(self.reply, bytes) and b"CLUSTER" in asked else b"+OK\r\n"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # or accept() goes on, and the port is taken
        self._listener.close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def hostile(reply: Reply) -> Iterator[_Hostile]:
    server = _Hostile(reply)
    try:
        yield server
    finally:
        server.close()


def store_at(port: int, scheme: str = "redis") -> RedisStore:
    address = parse_redis_url(f"{scheme}://127.0.0.1:{port}" + "/pictures" * ("sentinel" in scheme))
    return RedisStore(address)


def picture(shade: int) -> tuple[bytes, str]:
    body, image = BytesIO(), Image.new("RGB", (16, 12), (shade % 256, shade // 256, 0))
    image.save(body, "PNG")
    return body.getvalue(), mmhash.key(image).hex()


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_reply_costs_little_memory_and_time_and_its_connection(reply: Reply) -> None:
    async def ask(store: RedisStore) -> float:
        """The longest time that the event loop was blocked."""
        longest = 0.0

        async def tick() -> None:
            nonlocal longest
            while True:
                before = time.monotonic()
                await asyncio.sleep(0)
                longest = max(longest, time.monotonic() - before)

        ticking = asyncio.create_task(tick())
        for _ in range(5):
            try:
                async with asyncio.timeout(REPLY_S):
                    value = await store.get(b"name")
            except Exception:  # noqa: BLE001  (any is a miss to the breaker)
                value = None
            assert value in {None, b"x" * 80}
            if value is not None:  # its seal is what the breaker looks at
                await store.drop()
        ticking.cancel()
        await store.close()
        return longest

    with hostile(reply) as server:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.monotonic()
        longest = asyncio.run(ask(store_at(server.port)))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert time.monotonic() - started < 60
        assert grown < 48 << 10  # KiB
        assert longest < 5  # parsed at once, the largest of them would take minutes
        assert server.connections == 5  # each reply cost its connection


@pytest.mark.parametrize("scheme", ["redis+cluster", "redis+sentinel"])
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_cluster_and_a_sentinel_are_bounded_alike(scheme: str, reply: Reply) -> None:
    async def ask(store: RedisStore) -> None:
        for _ in range(2):
            with pytest.raises(Exception):  # noqa: B017, PT011  (any is a miss to the breaker)
                async with asyncio.timeout(0.3):
                    await store.get(b"name")
        await store.close()

    with hostile(reply) as server:
        if callable(reply):
            # Whatever is asked first is answered so.
            server.greeting = lambda _: b""  # type: ignore[method-assign]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        asyncio.run(ask(store_at(server.port, scheme)))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 << 10


def test_a_cluster_that_only_redirects_is_bounded() -> None:
    """Each redirection names another port, so that clients keep a node for each."""
    ports = itertools.cycle(range(1, 65535))

    class Redirecting(_Hostile):
        def greeting(self, asked: bytes) -> bytes:
            if b"SLOTS" not in asked:
                return b"+OK\r\n"
            node = b"*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$1\r\na\r\n" % self.port
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n" + node

    def redirect(connection: socket.socket) -> None:
        connection.sendall(b"-MOVED 1 127.0.0.1:%d\r\n" % next(ports))

    async def ask(store: RedisStore) -> int:
        for _ in range(40):
            with pytest.raises(Exception):  # noqa: B017, PT011
                async with asyncio.timeout(0.05):
                    await store.get(b"name")
        client = store._clients[0]
        nodes = len(client.get_nodes())  # type: ignore[union-attr]
        await store.close()
        assert not store._clients  # what it was told is forgotten
        return nodes

    server = Redirecting(redirect)
    try:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert asyncio.run(ask(store_at(server.port, "redis+cluster"))) < 2000
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 << 10
    finally:
        server.close()


@pytest.mark.parametrize(
    "name",
    [
        "2 GB announced and sent",
        "two replies",
        "OK",
        "an entry that nobody sealed",
    ],
)
def test_the_service_answers_and_leaves_such_a_server_alone(name: str) -> None:
    with hostile(REPLIES[name]) as server:
        url = f"redis://127.0.0.1:{server.port}"
        with serving(memo_url=url, memo_bytes=0) as service:
            before = service.memory()
            for shade in range(12):
                body, key = picture(shade)
                answer = service.client.post(
                    "/hash?of=pixels", content=body, headers={"content-type": "image/png"}
                )
                (item,) = answer.json()["items"]
                assert (item["key"], item["memo"]) == (key, "miss")
            assert service.memory() - before < 64 << 20
            failures = [
                float(line.rsplit(" ", 1)[1])
                for line in service.client.get("/metrics").text.splitlines()
                if line.startswith("mmhash_memo_failures_total{")
            ]
            assert sum(failures) >= 1
            if sum(failures) >= 3:
                service.log.wait_for("is not used")


def test_replies_that_come_one_late_end_their_connection() -> None:
    """Out of step by one: each reply is the right one to the command before."""

    sent = Event()

    def late(connection: socket.socket) -> None:
        sent.clear()
        try:
            connection.sendall(b"$3\r\nabc\r\n")
            time.sleep(0.05)
            connection.sendall(b"$3\r\nold\r\n")
        finally:
            sent.set()

    async def ask(store: RedisStore) -> list[bytes | None]:
        found: list[bytes | None] = []
        for number in range(4):
            if number:
                await asyncio.to_thread(sent.wait, 60)
            await asyncio.sleep(0.15)
            try:
                found.append(await store.get(b"name"))
            except Exception:  # noqa: BLE001  (a miss)
                found.append(None)
        await store.close()
        return found

    for scheme in ("redis",):
        with hostile(late) as server:
            found = asyncio.run(ask(store_at(server.port, scheme)))
            assert b"old" not in found
            assert server.connections > 1


@pytest.fixture
def redis_port(tmp_path: Path) -> Iterator[int]:
    with running_redis(tmp_path) as server:
        yield server.port


def test_a_value_of_512_mb_in_a_real_server_is_not_read(redis_port: int) -> None:
    async def ask(store: RedisStore) -> bytes | None:
        value = await store.get(b"long")
        await store.close()
        return value

    with closing(Redis(port=redis_port, socket_timeout=TIMEOUT_S)) as admin:
        admin.execute_command("SETRANGE", b"mmhash:long", 100_000_000, b"x")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    value = asyncio.run(ask(store_at(redis_port)))
    assert value is not None
    assert len(value) < 2 << 20  # too long for an entry, and so a bad seal
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 << 10
