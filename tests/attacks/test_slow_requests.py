"""Requests that an engine cannot answer in time, sent to have its worker ejected.

A slow response is not a failure of its worker; a failed probe is.
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
def test_no_client_has_a_worker_ejected() -> None:
    with (
        engines(1) as (worker,),
        gateway_before([worker.url], settings=SETTINGS) as gateway,
        gateway.new_client() as client,
        ThreadPoolExecutor(4 * EJECT_AFTER) as threads,
    ):

        def ask(request: dict[str, object]) -> str:
            try:
                return str(client.post("/v1/chat/completions", json=request).json()["title"])
            except httpx.RemoteProtocolError:
                return "an incomplete stream"

        hanging = [{"mode": "hang"}, {"stream": True, "mode": "hang-in-stream"}]
        outcomes = list(threads.map(ask, hanging * 2 * EJECT_AFTER))
        assert outcomes == ["Worker timeout", "an incomplete stream"] * 2 * EJECT_AFTER
        assert [one["healthy"] for one in client.get("/workers").json()["workers"]] == [True]
