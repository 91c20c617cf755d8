"""`mmhash serve` with workers: `/route` and `/workers` without a proxy."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmhash.prompts import Model
from tests.live import models
from tests.support.gateway import EngineProcess, engines
from tests.support.kv_publisher import Publisher, stored
from tests.support.service import environment, serving
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ENGINE = "vllm@0.32.0"
CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "a prompt of several blocks " * 20}],
}


@pytest.fixture(scope="module")
def fleet() -> Iterator[list[EngineProcess]]:
    with engines(2) as started:
        yield started


def variables(*workers: str) -> dict[str, str]:
    return environment(
        MMHASH_GATEWAY_WORKER_LIST=json.dumps(workers), MMHASH_GATEWAY_HEALTH_INTERVAL_S="0.1"
    )


def test_the_service_routes_by_the_workers_events(
    fleet: list[EngineProcess], tmp_path: Path
) -> None:
    folder = tmp_path / "tiny"
    models.write("qwen2_vl", folder)
    plan = Model.load(folder).plan(CHAT, ENGINE, block_size=16)
    with Publisher() as publisher:
        events = f"events={publisher.events},replay={publisher.replay}"
        workers = (
            f"{fleet[0].url},engine={ENGINE},block_size=16",
            f"{fleet[1].url},{events},engine={ENGINE},block_size=16",
        )
        settings = {"models": {"tiny": str(folder)}}
        with (
            serving(settings=settings, env=variables(*workers)) as service,
            service.new_client() as client,
        ):
            wait_until(
                lambda: (
                    [
                        (one["healthy"], one["connected"])
                        for one in client.get("/workers").json()["workers"]
                    ]
                    == [(True, False), (True, True)]
                )
            )
            publisher.publish(stored(*plan.event_ids))
            wait_until(lambda: client.get("/workers").json()["workers"][1]["blocks"] > 0)
            answer = client.post("/route", json=CHAT).json()
            assert answer["plan"] == {"tokens": len(plan.token_ids), "blocks": len(plan.blocks)}
            assert answer["request"] == CHAT
            first, second = answer["workers"]
            assert (first["url"], second["url"]) == (fleet[1].url, fleet[0].url)
            assert first["matched_tokens"] == 16 * len(plan.blocks) > 0
            assert second["matched_tokens"] == 0
            # It is no proxy: nothing was sent to a worker.
            assert client.post("/v1/chat/completions", json=CHAT).status_code == 404
            assert all(one["requests"] == 0 for one in client.get("/workers").json()["workers"])
