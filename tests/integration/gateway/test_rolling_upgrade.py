"""A rolling upgrade under load: each worker gets another release, every second one an address."""

import asyncio
import itertools
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
from tests.support.service import TIMEOUT_S, count

pytestmark = pytest.mark.slow

REQUESTS_S = 50
STEP_S = 3.0


def test_no_request_is_lost_or_executed_twice(tmp_path: Path) -> None:
    file, log = tmp_path / "workers", tmp_path / "executed"
    models.write("qwen2_vl", tmp_path / "tiny")
    settings = {"models": {"tiny": str(tmp_path / "tiny")}}
    with engines(4) as old, ExitStack() as stack:
        specs = [f"{one.url},engine=vllm@0.32.0" for one in old]
        replace(file, "\n".join([*specs, ""]))
        gateway = stack.enter_context(
            gateway_before([], "--worker-file", str(file), settings=settings)
        )
        upgrade = Thread(target=upgrade_each, args=(old, specs, file, stack))
        upgrade.start()
        failures, answering = asyncio.run(ask(gateway.url, log, upgrade))
        with gateway.new_client() as client:
            retries = count(client, "mmhash_gateway_retries_total")
    executed = Counter(map(int, log.read_text().split()))
    print(f"{answering.total()} answers, {retries} retries: {answering}")
    assert not failures
    assert executed == dict.fromkeys(range(answering.total()), 1)
    assert len(answering) > 4  # old workers and new ones


def upgrade_each(old: list[EngineProcess], specs: list[str], file: Path, stack: ExitStack) -> None:
    """Replace one worker after the other; each ends when it has answered its requests."""
    for number, one in enumerate(old):
        time.sleep(STEP_S)
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


async def ask(url: str, log: Path, upgrade: Thread) -> tuple[list[str], Counter[str]]:
    """Send requests until a step after the upgrade; return failures, and the workers' answers."""
    failures: list[str] = []
    answering: Counter[str] = Counter()

    async def ask_once(number: int) -> None:
        text = f"question {number % 25} " * 40
        chat: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": text}]}
        chat |= {"id": number, "log": str(log), "seconds": number % 10 / 10}
        answer = await client.post("/v1/chat/completions", json=chat)
        if answer.status_code == 200:
            answering[answer.json()["worker"]] += 1
        else:
            failures.append(answer.text)

    async with (
        httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client,
        asyncio.TaskGroup() as group,
    ):
        start, left = time.monotonic(), int(STEP_S * REQUESTS_S)
        for number in itertools.count():
            group.create_task(ask_once(number))
            await asyncio.sleep(start + number / REQUESTS_S - time.monotonic())
            left -= not upgrade.is_alive()
            if not left:
                break
    return failures, answering
