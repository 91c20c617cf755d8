"""The load and the health of a worker."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mmhash_service.gateway.connection import BrokenError, UnreachableError
from mmhash_service.gateway.expected import UnnamedBlocks
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker import ENOUGH_BLOCKS, RUNNING_TOKENS, NameCheck, Worker
from mmhash_service.gateway.worker_spec import parse_worker
from tests.support.listening import serve_connections, stop_listening


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr("mmhash_service.gateway.worker.EJECT_AFTER", 2)
    return Worker(parse_worker("http://a:1"), GatewaySettings())


def test_load_counts_tokens_to_compute_and_running_requests(worker: Worker) -> None:
    worker.begin(500)
    assert worker.load == 500 + RUNNING_TOKENS
    worker.begin_response(500)
    assert worker.load == RUNNING_TOKENS
    worker.end()
    assert worker.load == 0


def test_a_request_is_a_part_of_a_conversation_until_its_response(worker: Worker) -> None:
    worker.begin(500)
    worker.begin(100, new_part=0.25)
    assert (worker.waiting, worker.new_parts) == (2, 1.25)
    worker.begin_response(500)
    worker.begin_response(100, new_part=0.25)
    assert (worker.waiting, worker.new_parts) == (0, 0)


def test_blocks_are_expected_until_they_are_removed(worker: Worker) -> None:
    blocks = worker.begin(500, [1, 2])
    worker.begin_response(500)
    assert worker.expected.run([1, 2, 3], 0) == 2
    worker.expected.remove(blocks)
    assert worker.expected.run([1, 2, 3], 0) == 0


def test_a_worker_that_comes_back_may_have_lost_what_it_was_sent(worker: Worker) -> None:
    worker.readmit()
    blocks = UnnamedBlocks([b"1"], 32)
    worker.sent.add(blocks, 1000)
    worker.readmit()
    assert worker.sent.count_tokens(blocks) == 32
    for _ in range(2):
        worker.fail()
    worker.readmit()
    assert worker.sent.count_tokens(blocks) == 0


def test_a_worker_that_refuses_a_connection_has_lost_what_it_was_sent() -> None:
    """Its process has ended; one that closes a connection may have refused a request only."""
    blocks = UnnamedBlocks([b"1"], 32)

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(close, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        worker = Worker(parse_worker(f"http://127.0.0.1:{port}"), GatewaySettings())
        worker.sent.add(blocks, 1000)
        with pytest.raises(BrokenError):
            await worker.probe(b"/health", 60)
        assert worker.sent.count_tokens(blocks) == 32
        server.close()
        await server.wait_closed()
        with pytest.raises(UnreachableError):
            await worker.probe(b"/health", 60)
        assert worker.sent.count_tokens(blocks) == 0

    asyncio.run(run())


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@contextmanager
def worker_of(*connections: list[bytes]) -> Iterator[tuple[Worker, list[bytes]]]:
    """A worker with the answers of each connection, after which it closes; the paths it has read."""
    left, paths = list(connections), []

    def serve(connection: socket.socket) -> None:
        for answer in left.pop(0):
            paths.append(connection.recv(65536).split()[1])
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serve_connections(listener, serve)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        worker = Worker(parse_worker(url), GatewaySettings())
        yield worker, paths
        worker.close()
        stop_listening(listener)


def test_a_request_that_a_worker_may_have_read_is_not_retried_there() -> None:
    """A POST was executed twice by each of two workers."""

    async def run() -> None:
        with worker_of([OK, b""], [OK]) as (worker, paths):
            await worker.probe(b"/1", 60)
            with pytest.raises(BrokenError):
                await worker.probe(b"/2", 60)
            assert paths == [b"/1", b"/2"]

    asyncio.run(run())


def test_failures_in_a_row_eject_a_worker_once(worker: Worker) -> None:
    assert worker.readmit()
    assert not worker.fail()
    worker.succeed()
    assert [worker.fail() for _ in range(4)] == [False, True, False, False]
    assert not worker.is_healthy
    assert worker.readmit()
    assert not worker.readmit()


def test_names_are_unknown_before_the_first_request() -> None:
    assert NameCheck().verdict == "unknown"


def test_blocks_that_no_event_names_are_wrong_after_a_few() -> None:
    check = NameCheck()
    check.add(is_found=False, missing=ENOUGH_BLOCKS - 1)
    assert check.verdict == "unknown"
    check.add(is_found=False, missing=1)
    assert (check.verdict, check.missing) == ("wrong", ENOUGH_BLOCKS)


def test_a_block_that_an_event_names_is_right_whatever_was_before() -> None:
    check = NameCheck()
    check.add(is_found=False, missing=100)
    check.add(is_found=True, missing=7)
    assert (check.verdict, check.missing) == ("right", 0)


def test_a_worker_that_is_restarted_as_another_release_becomes_wrong() -> None:
    check = NameCheck()
    check.add(is_found=True, missing=0)
    check.add(is_found=False, missing=ENOUGH_BLOCKS)
    assert check.verdict == "wrong"
