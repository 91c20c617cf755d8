"""Headers and bytes that pass between clients and workers, and the pooled connections."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress

import pytest

from mmhash_service.gateway.connection import (
    BrokenError,
    Connection,
    Pool,
    SilentError,
    UnreachableError,
    for_client,
    for_worker,
    request_head,
)

FIRST = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirst"
OTHER = b"HTTP/1.1 200 OK\r\nx-other: 1\r\ncontent-length: 5\r\n\r\nother"
HEAD = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


@asynccontextmanager
async def pool_before(response: bytes, late: bytes = b"") -> AsyncIterator[Pool]:
    """Run a worker that sends a response to each request, and more a moment later."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            closing(writer),
            suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError),
        ):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(response)
                if late:
                    await asyncio.sleep(0.05)
                    writer.write(late)

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    pool = Pool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 60)
    try:
        yield pool
    finally:
        pool.close()
        server.close()
        await asyncio.sleep(0.05)


async def read_all(connection: Connection) -> bytes:
    await connection.send(b"GET", HEAD, [], 60)
    pieces = []
    while piece := await connection.read():
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("more", [OTHER, OTHER[:-3], b"HTTP/1.1 100 Continue\r\n\r\n", b"x"])
def test_bytes_after_a_response_belong_to_no_other_response(more: bytes, is_late: bool) -> None:
    async def main() -> None:
        response = FIRST if is_late else FIRST + more
        async with pool_before(response, more if is_late else b"") as pool:
            for _ in range(3):
                connection = pool.take_idle() or await pool.open()
                assert await read_all(connection) == b"first"
                assert b"x-other" not in dict(connection.headers)
                pool.give_back(connection)
                async with asyncio.timeout(30):
                    while not connection.is_closed:  # noqa: ASYNC110  (it has no event)
                        await asyncio.sleep(0.01)
                assert pool.take_idle() is None

    asyncio.run(main())


def test_a_request_has_its_own_time_on_a_connection_that_a_longer_one_used() -> None:
    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(FIRST)
            await reader.read()

    async def main() -> None:
        server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
        with closing(server):
            connection = await Pool(
                f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 60
            ).open()
            assert await read_all(connection) == b"first"
            async with asyncio.timeout(30):
                with pytest.raises(SilentError):
                    await connection.send(b"GET", HEAD, [], 0.1)

    asyncio.run(main())


NO_RESPONSES = {
    "a status below 100": b"HTTP/1.1 099 X\r\ncontent-length: 0\r\n\r\n",
    "a status above 599": b"HTTP/1.1 600 X\r\ncontent-length: 0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx",
    "endless interim responses": b"HTTP/1.1 103 X\r\nlink: x\r\n\r\n" * 9000,
    "no head": b"{}",
    "two lengths": FIRST.replace(b"\r\n\r\n", b"\r\ncontent-length: 6\r\n\r\n"),
    "a length and chunks": FIRST.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n"),
    "chunks of gzip": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "identity": b"HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\n",
    "a negative length": FIRST.replace(b"5", b"-5"),
    "a length beyond numbers": FIRST.replace(b"5", b"9" * 20),
    "a folded header": FIRST.replace(b"\r\n\r\n", b"\r\nx: a\r\n b\r\n\r\n"),
    "a bare carriage return": FIRST.replace(b"\r\n\r\n", b"\r\nx: a\rset-cookie: b\r\n\r\n"),
    "bare line feeds": FIRST.replace(b"\r\n", b"\n"),
    "a zero byte": FIRST.replace(b"\r\n\r\n", b"\r\nx: a\0b\r\n\r\n"),
    "a space in a name": FIRST.replace(b"\r\n\r\n", b"\r\nx y: 1\r\n\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("response", NO_RESPONSES.values(), ids=NO_RESPONSES)
def test_a_malformed_response_is_an_error(response: bytes) -> None:
    async def main() -> None:
        async with pool_before(response) as pool:
            with pytest.raises(BrokenError):
                await read_all(await pool.open())

    asyncio.run(main())


@pytest.mark.parametrize(
    "trailer", [b"connection: close", b"proxy-connection: close", b"connection: x, close"]
)
def test_a_trailer_that_ends_the_connection_ends_no_other_request(trailer: bytes) -> None:
    """The parser takes what follows on that connection for garbage, after the worker has run it."""
    chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n"

    async def main() -> None:
        async with pool_before(chunks + trailer + b"\r\n\r\n") as pool:
            for _ in range(3):
                connection = pool.take_idle() or await pool.open()
                assert await read_all(connection) == b"first"
                pool.give_back(connection)

    asyncio.run(main())


def test_a_connection_without_more_is_used_again() -> None:
    async def main() -> None:
        async with pool_before(b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + FIRST) as pool:
            connection = await pool.open()
            for _ in range(3):
                assert await read_all(connection) == b"first"
                pool.give_back(connection)
                assert pool.take_idle() is connection
            pool.give_back(connection)
            connection.abort("the end")

    asyncio.run(main())


@pytest.mark.parametrize(("close", "is_kept"), [(Pool.close, False), (Pool.close_idle, True)])
def test_a_closed_pool_keeps_no_connection(close: Callable[[Pool], None], is_kept: bool) -> None:
    """A request that ended after its worker had left kept its connection open."""

    async def run() -> None:
        async with pool_before(FIRST) as pool:
            connection = await pool.open()
            assert await read_all(connection) == b"first"
            close(pool)
            pool.give_back(connection)
            assert connection.is_closed is not is_kept
            assert (pool.take_idle() is connection) is is_kept
            connection.abort("the test is over")

    asyncio.run(run())


def test_a_connection_whose_request_was_not_read_is_not_used_again() -> None:
    """Its next request would wait behind the rest of a body."""

    async def run() -> None:
        async with pool_before(FIRST) as pool:
            connection = await pool.open()
            await connection.send(b"POST", HEAD, [bytes(64 << 20)], 60)
            assert await connection.read() == b"first"
            pool.give_back(connection)
            assert connection.is_closed

    asyncio.run(run())


HOP = [(b"connection", b"Keep-Alive, X-Mine"), (b"keep-alive", b"1"), (b"x-mine", b"1")]


def test_a_worker_gets_end_to_end_headers() -> None:
    sent = [
        *HOP,
        (b"host", b"gateway"),
        (b"content-length", b"3"),
        (b"transfer-encoding", b"chunked"),
        (b"expect", b"100-continue"),
        (b"x-override-bootstrap-host", b"evil"),
        (b"x-mmhash-tenant-tag", b"forged"),
        (b"authorization", b"Bearer key"),
        (b"traceparent", b"00-1-1-01"),
        (b"accept", b"a"),
        (b"accept", b"b"),
    ]
    kept = [(b"authorization", b"Bearer key"), *sent[-3:]]
    assert for_worker(sent, keep_authorization=True) == kept
    assert for_worker(sent, keep_authorization=False) == kept[1:]


def test_a_connection_header_drops_no_header_of_one_value() -> None:
    sent = [(b"x-mmhash-tenant", b"acme"), (b"content-type", b"text/plain"), (b"x-mine", b"1")]
    named = [(b"connection", b"close, X-Mmhash-Tenant , content-type,x-mine")]
    assert for_worker([*named, *sent], keep_authorization=True) == sent[:2]


def test_a_client_gets_end_to_end_headers() -> None:
    received = [*HOP, (b"date", b"now"), (b"x-request-id", b"1"), (b"content-encoding", b"br")]
    assert for_client(received) == [(b"content-encoding", b"br")]


def test_the_head_of_a_request() -> None:
    assert request_head(b"POST", b"/a?b", b"h:1", [(b"x", b"y")], 3) == (
        b"POST /a?b HTTP/1.1\r\nhost: h:1\r\nx: y\r\ncontent-length: 3\r\n\r\n"
    )
    assert request_head(b"GET", b"/", b"h", [], None) == b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"


@pytest.mark.parametrize("host", ["pod..svc", "a" * 64])
def test_a_host_that_no_name_server_takes_cannot_be_reached(host: str) -> None:
    """A UnicodeError once ended the probes of the worker."""

    async def run() -> None:
        with pytest.raises(UnreachableError, match="cannot connect"):
            await Pool(f"http://{host}:1", 60).open()

    asyncio.run(run())
