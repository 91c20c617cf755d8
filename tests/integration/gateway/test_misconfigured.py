"""If an option of a worker is wrong, no request fails, and the log names worker and option.

With Prometheus on the PATH, the alerts of deploy/ fire too.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from mmhash.prompts import Model
from tests.live import models
from tests.live.prompts import data_url
from tests.support.gateway import gateway_before
from tests.support.images import encode_noise
from tests.support.kv_publisher import Publisher, stored
from tests.support.ports import free_port
from tests.support.scripted import Answer, ScriptedServer
from tests.support.service import count
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
ENGINE = "vllm@0.32.0"
RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yml"
PROMETHEUS = shutil.which("prometheus") or ""

MISNAMED = "MmhashGatewayMisnamedBlocks"
NAMED = {
    "port": ("events=",),
    "release": ("vllm@0.32.0", "vllm@0.30.0"),
    "engine": ("vllm@0.32.0", "sglang@0.5.23"),
    "algorithm": ("block_size", "algorithm", "seed"),
    "size": ("16", "block_size=32"),
    "nothing": ("engine",),
}
"""What the warning about each worker must name."""


class Misconfigured(NamedTuple):
    """A worker that runs vLLM, and is configured as something else."""

    fault: str
    server: ScriptedServer
    publisher: Publisher

    @property
    def spec(self) -> str:
        events = self.publisher.events
        members = {
            "port": f"engine={ENGINE},block_size=16,events=tcp://127.0.0.1:{free_port()}",
            "release": f"engine=vllm@0.30.0,block_size=16,events={events}",
            "engine": f"engine=sglang@0.5.23,block_size=16,events={events}",
            "algorithm": f"engine={ENGINE},block_size=16,block_algorithm=sha256_cbor,seed=0,events={events}",
            "size": f"engine={ENGINE},block_size=32,events={events}",
            "nothing": "",
        }[self.fault]
        return f"{self.server.url},{members}".rstrip(",")

    def chat(self) -> dict[str, Any]:
        """Return a chat that only this worker serves. Releases differ in their names of images."""
        parts: list[dict[str, Any]] = [{"type": "text", "text": "a prompt of some blocks " * 40}]
        if self.fault == "release":
            parts.insert(
                0,
                {
                    "type": "image_url",
                    "image_url": {"url": data_url(encode_noise("PNG", size=(84, 84)), "PNG")},
                },
            )
        return {"model": self.fault, "messages": [{"role": "user", "content": parts}]}


@contextmanager
def vllm(fault: str) -> Iterator[Misconfigured]:
    """Run a server that describes itself, unless a proxy hides the description."""
    listed = {"object": "list", "data": [{"id": fault}]}
    says: dict[str, Answer] = {"/v1/models": (200, {}, json.dumps(listed).encode())}
    if fault != "nothing":
        says["/version"] = (200, {}, b'{"version": "0.32.0"}')
    with ScriptedServer((200, {}, b"{}"), by_path=says) as server, Publisher() as publisher:
        yield Misconfigured(fault, server, publisher)


def test_each_misconfigured_worker_is_named_in_log_states_and_metrics(tmp_path: Path) -> None:
    models.write("qwen2_vl", tmp_path / "tiny")
    model = Model.load(tmp_path / "tiny")
    with ExitStack() as stack:
        workers = [stack.enter_context(vllm(fault)) for fault in NAMED]
        settings = {"models": {"tiny": str(tmp_path / "tiny")}}
        specs = [worker.spec for worker in workers]
        gateway = stack.enter_context(gateway_before(specs, settings=settings))
        client = stack.enter_context(gateway.new_client())

        def states() -> dict[str, dict[str, Any]]:
            listed = client.get("/workers").json()["workers"]
            return {one["url"]: one for one in listed}

        unreachable = {
            worker.server.url for worker in workers if worker.fault in {"port", "nothing"}
        }
        wait_until(
            lambda: all(
                one["healthy"] and (one["connected"] or url in unreachable)
                for url, one in states().items()
            )
        )
        for worker in workers:
            client.post(PATH, json=worker.chat()).raise_for_status()
            plan = model.plan(worker.chat(), ENGINE, block_size=16)
            worker.publisher.publish(stored(*plan.event_ids))
        for worker in workers:
            url, named = worker.server.url, NAMED[worker.fault]
            wait_until(
                lambda url=url, named=named: any(
                    all(text in line for text in (url, '"level":"warning"', *named))
                    for line in gateway.log.text.splitlines()
                ),
                f"{worker.fault}: {gateway.log.text}",
            )
            state = states()[url]
            if worker.fault == "nothing":
                assert "engine" in state["lacking"]
                assert state["last_how"] == "no-engine"
                assert count(client, "mmhash_gateway_decisions_total", how="no-engine") == 1
                continue
            wait_until(lambda url=url: states()[url]["names"] == "wrong", worker.fault)
            assert count(client, "mmhash_gateway_worker_misnamed", worker=url) == 1
        if PROMETHEUS:
            alerts = {(MISNAMED, worker.server.url) for worker in workers[:-1]}
            alerts.add(("MmhashGatewayEventsDisconnected", workers[0].server.url))
            alerts.add(("MmhashGatewayUnplanned", ""))
            with prometheus(gateway.url, tmp_path) as fired:
                # A rate needs a counter that grows.
                wait_until(
                    lambda: (
                        client.post(PATH, json=workers[-1].chat()).is_success and alerts <= fired()
                    ),
                    pause_s=0.5,
                )


@contextmanager
def prometheus(url: str, folder: Path) -> Iterator[Any]:
    """Run Prometheus on a gateway. Yield a function that returns the firing alerts by worker."""
    rules = yaml.safe_load(RULES.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule.pop("for", None)  # a rule would wait for minutes
    (folder / "alerts.yml").write_text(json.dumps(rules))
    job = {"job_name": "mmhash", "static_configs": [{"targets": [url.removeprefix("http://")]}]}
    often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration = {"global": often, "rule_files": ["alerts.yml"], "scrape_configs": [job]}
    (folder / "prometheus.yml").write_text(json.dumps(configuration))
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            *(PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}"),
            *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"),
            "--log.level=error",
        ],
        stderr=sys.stderr,
    )

    def fired() -> set[tuple[str, str]]:
        try:
            found = httpx.get(f"http://{address}/api/v1/alerts").json()["data"]["alerts"]
        except httpx.TransportError:  # Prometheus is still starting
            return set()
        labels = [one["labels"] for one in found if one["state"] == "firing"]
        return {(one["alertname"], one.get("worker", "")) for one in labels}

    try:
        yield fired
    finally:
        process.terminate()
        process.wait()
