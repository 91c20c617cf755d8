"""The server as a user starts it: a process of its own."""

from collections.abc import Iterator

import pytest

from tests.support.service import serving


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    with serving() as service:
        yield service.url
