"""What an operator sees of a gateway: metrics of each worker, its log, and its check."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.live import models
from tests.support.gateway import COMMAND, engines, gateway_before, healthy
from tests.support.kv_publisher import Publisher
from tests.support.service import count
from tests.support.waiting import wait_until

PATH = "/v1/chat/completions"
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Say hello."}]}


def routed(log: str) -> list[dict[str, Any]]:
    """Return the lines of the access log for chats."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["message"].startswith(f"POST {PATH}")]


def test_each_worker_has_metrics_and_the_log_names_it() -> None:
    settings = {"gateway.route_header": "true"}
    workers = engines(2)
    with workers as (one, two), gateway_before([one.url, two.url], settings=settings) as gateway:
        with gateway.new_client() as client:
            wait_until(lambda: healthy(client) == [True, True])
            client.post("/route", json=CHAT).raise_for_status()
            assert count(client, "mmhash_gateway_decisions_total") == 0  # nothing was sent
            for _ in range(2):
                answer = client.post(PATH, json=CHAT).raise_for_status()
                route = answer.headers["x-mmhash-route"]
                assert re.fullmatch(r"worker=http://\S+; how=no-engine; matched_tokens=0", route)
            states = client.get("/workers").json()["workers"]
            assert [one["last_how"] for one in states] == ["no-engine", "no-engine"]
            for worker in (one, two):
                assert count(client, "mmhash_gateway_worker_healthy", worker=worker.url) == 1
                name = "mmhash_gateway_first_byte_seconds_count"
                assert count(client, name, worker=worker.url) == 1
            assert count(client, "mmhash_gateway_decisions_total") == 2
            assert count(client, "mmhash_gateway_requests_in_progress") == 0
            two.kill()
            wait_until(lambda: healthy(client) == [True, False])
            assert count(client, "mmhash_gateway_worker_healthy", worker=two.url) == 0
        log = gateway.stop()
    lines = routed(log)
    assert {line["worker"] for line in lines} == {one.url, two.url}
    assert [line["matched_tokens"] for line in lines] == [0, 0]
    failures = re.findall(f'worker {two.url}: probe failed[^"]*', log)
    assert len(failures) == len(set(failures)) > 0  # logged once, not for each probe


@pytest.mark.slow
def test_the_check_connects_to_each_worker(tmp_path: Path) -> None:
    models.write("qwen2_vl", tmp_path / "tiny")
    model = json.dumps({"tiny": str(tmp_path / "tiny")})
    with engines(2) as (one, two), Publisher() as publisher:
        events = f"events={publisher.events},replay={publisher.replay}"
        good = {
            f"{one.url},{events},engine=vllm@0.32.0": "",
            f"{two.url},{events},engine=vllm@0.28.0,seed=0": "",  # no names without the seed
        }
        bad = {
            f"{one.url},events=tcp://127.0.0.1:1,engine=vllm@0.32.0": "nothing answers at",
            "http://127.0.0.1:1,engine=vllm@0.32.0": "connection refused",
        }
        for problems in (good, bad):
            named = [text for spec in problems for text in ("--worker", spec)]
            done = subprocess.run(
                [*COMMAND, "--check", *named, "--set", f"models={model}"],
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            print(done.stdout)
            assert done.returncode == (problems is bad)
            for spec, problem in problems.items():
                assert f"worker {spec.partition(',')[0]}: vllm@0." in done.stdout
                assert problem in done.stdout
