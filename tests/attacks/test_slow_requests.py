"""Requests that an engine cannot answer in time: their worker would be ejected, with all that others wait for.

A request without an answer says nothing of its worker: the probes do.
"""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from mmhash_service.gateway.worker import EJECT_AFTER
from tests.support.gateway import engines, gateway_before

SETTINGS = {
    "gateway.worker_timeout_s": "1",
    "gateway.health_interval_s": "3600",  # a probe that succeeds would make the others harmless
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_of_a_client", [{"mode": "hang"}, {"stream": True, "mode": "hang-in-stream"}]
)
def test_no_client_has_a_worker_ejected(request_of_a_client: dict[str, object]) -> None:
    with (
        engines(1) as (worker,),
        gateway_before([worker.url], settings=SETTINGS) as gateway,
        gateway.new_client() as client,
    ):

        def ask(_: int) -> int:
            try:
                return client.post("/v1/chat/completions", json=request_of_a_client).status_code
            except httpx.RemoteProtocolError:  # the end of a stream that is not complete
                return 0

        with ThreadPoolExecutor(2 * EJECT_AFTER) as threads:
            statuses = set(threads.map(ask, range(2 * EJECT_AFTER)))
        assert statuses <= {0, 504}
        assert [one["healthy"] for one in client.get("/workers").json()["workers"]] == [True]
