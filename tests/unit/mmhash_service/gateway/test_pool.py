"""The connections to one worker."""

import asyncio

import pytest

from mmhash_service.gateway.connection import UnreachableError
from mmhash_service.gateway.pool import Pool


@pytest.mark.parametrize("host", ["pod..svc", "a" * 64])
def test_a_host_that_no_name_server_takes_cannot_be_reached(host: str) -> None:
    """It was a UnicodeError, which ended the probes of its worker."""

    async def run() -> None:
        with pytest.raises(UnreachableError, match=host):
            await Pool(f"http://{host}:1", 60).open()

    asyncio.run(run())
