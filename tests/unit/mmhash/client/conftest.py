"""Both clients behind one interface."""

from typing import Any

import pytest

from mmhash.client import Client
from tests.support.blocking import BlockingAsyncClient


@pytest.fixture(params=[Client, BlockingAsyncClient], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Any:
    """Either client, made and used the same way."""
    return request.param
