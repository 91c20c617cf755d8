"""Services in their own processes, and Redis servers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support import memo
from tests.support.redis import BINARY, NEEDED, RedisServer
from tests.support.service import COMMAND, Service, serving

# This service waits longer for its store: on a busy machine some hits would become misses.
PATIENT_COMMAND = (COMMAND[0], "-m", "tests.support.patient_service", *COMMAND[3:])


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Start a Redis server with more arguments."""
    if BINARY is None:
        pytest.skip(NEEDED)
    started: list[RedisServer] = []

    def start(*arguments: str) -> RedisServer:
        folder = tmp_path / f"redis{len(started)}"
        folder.mkdir()
        started.append(RedisServer(folder, *arguments))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def redis(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """A plain Redis server."""
    return start_redis()


@pytest.fixture
def serve() -> Iterator[Callable[..., httpx.Client]]:
    """Run the service with a memo, and return a client of the service."""
    with ExitStack() as stack:
        started: list[Service] = []

        def serve(memo_url: str) -> httpx.Client:
            settings = {"memo_url": memo_url}
            service = serving(settings=settings, program=PATIENT_COMMAND)
            started.append(stack.enter_context(service))
            return stack.enter_context(started[-1].new_client())

        yield serve
    for each in started:
        assert '"level":"error"' not in each.log.text


@pytest.fixture(scope="session")
def images() -> list[bytes]:
    """Small images, all different."""
    return memo.small_images()
