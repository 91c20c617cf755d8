"""Both clients behind one interface, and a server that sends scripted responses."""

from typing import Any

import pytest

from mmhash.client import Client
from tests.support.blocking import BlockingAsyncClient
from tests.support.scripted import ScriptedServer


@pytest.fixture(params=[Client, BlockingAsyncClient], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Any:
    """Either client, made and used the same way."""
    return request.param


@pytest.fixture(scope="session")
def scripted() -> type[ScriptedServer]:
    """The class of servers that send scripted responses."""
    return ScriptedServer
