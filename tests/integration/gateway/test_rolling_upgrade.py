"""A rolling upgrade under load: each worker gets another release, every second one an address."""

import asyncio
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.live import models
from tests.support.gateway import EngineProcess, engines, gateway_before, replace
from tests.support.service import TIMEOUT_S

pytestmark = pytest.mark.slow

REQUESTS_S = 50
SECONDS = 20


def test_no_request_is_lost_or_executed_twice(tmp_path: Path) -> None:
    file, log = tmp_path / "workers", tmp_path / "executed"
    models.write("qwen2_vl", tmp_path / "tiny")
    settings = {"models": {"tiny": str(tmp_path / "tiny")}, "gateway.refresh_s": "0.5"}
    with engines(4) as old, ExitStack() as stack:
        specs = [f"{one.url},engine=vllm@0.32.0" for one in old]
        replace(file, "\n".join([*specs, ""]))
        gateway = stack.enter_context(
            gateway_before([], "--worker-file", str(file), settings=settings)
        )
        upgrade = Thread(target=upgrade_each, args=(old, specs, file, stack))
        upgrade.start()
        failures, answering = asyncio.run(ask(gateway.url, log))
        upgrade.join()
        with gateway.new_client() as client:
            states = client.get("/workers").json()["workers"]
            retries = [
                one for one in client.get("/metrics").text.splitlines() if "retries_total{" in one
            ]
    print(answering, retries)
    assert not failures
    assert {one["engine"] for one in states} == {"vllm@0.33.0"}
    executed = Counter(map(int, log.read_text().split()))
    assert executed == dict.fromkeys(range(REQUESTS_S * SECONDS), 1)
    assert len(answering) == 8  # each worker, old and new


def upgrade_each(old: list[EngineProcess], specs: list[str], file: Path, stack: ExitStack) -> None:
    """Replace one worker after the other; each ends when it has answered its requests."""
    for number, one in enumerate(old):
        time.sleep(SECONDS / 6)
        new = EngineProcess(f"{one.name}-new")
        stack.callback(new.kill)
        if number % 2:
            new.port, new.url = one.port, one.url
            end(one)
        new.start()
        specs[number] = f"{new.url},engine=vllm@0.33.0"
        replace(file, "\n".join([*specs, ""]))
        end(one)


def end(engine: EngineProcess) -> None:
    assert engine.process is not None
    engine.process.send_signal(signal.SIGTERM)
    engine.process.wait(TIMEOUT_S)


async def ask(url: str, log: Path) -> tuple[list[str], Counter[str]]:
    """Send the requests at their rate; return the failures, and how often each worker answered."""
    failures: list[str] = []
    answering: Counter[str] = Counter()
    async with (
        httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client,
        asyncio.TaskGroup() as group,
    ):

        async def ask_once(number: int) -> None:
            text = f"question {number % 25} " * 40
            chat: dict[str, Any] = {
                "model": "tiny",
                "messages": [{"role": "user", "content": text}],
            }
            chat |= {"id": number, "log": str(log), "seconds": number % 10 / 10}
            answer = await client.post("/v1/chat/completions", json=chat)
            if answer.status_code == 200:
                answering[answer.json()["worker"]] += 1
            else:
                failures.append(answer.text)

        for number in range(REQUESTS_S * SECONDS):
            group.create_task(ask_once(number))
            await asyncio.sleep(1 / REQUESTS_S)
    return failures, answering
