"""Services in processes of their own, and Redis servers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support import memo, service
from tests.support.patience import PATIENT_COMMAND
from tests.support.redis import BINARY, NEEDED, RedisServer


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Start a Redis server with more arguments, and the settings of a file."""
    if BINARY is None:
        pytest.skip(NEEDED)
    started: list[RedisServer] = []

    def start(*arguments: str, config: Path | None = None) -> RedisServer:
        folder = tmp_path / f"redis{len(started)}"
        folder.mkdir()
        started.append(RedisServer(folder, *arguments, config=config))
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
    """Run the service under settings, and return a client of it."""
    with ExitStack() as stack:
        started: list[service.Service] = []

        def serve(*settings: str, program: Sequence[str] = PATIENT_COMMAND) -> httpx.Client:
            arguments = [word for setting in settings for word in ("--set", setting)]
            started.append(stack.enter_context(service.serving(*arguments, program=program)))
            return stack.enter_context(started[-1].new_client())

        yield serve
    for each in started:
        assert '"level":"error"' not in each.log.text


@pytest.fixture(scope="session")
def images() -> list[bytes]:
    """Small images, all different."""
    return memo.small_images()
