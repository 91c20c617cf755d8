"""examples/routing_gateway.py sends a chat to the engine whose KV events have its blocks."""

import base64
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support import prompt_models
from tests.support.gateway import engines
from tests.support.kv_publisher import Publisher, stored
from tests.support.ports import free_port
from tests.support.service import TIMEOUT_S, serving

ROOT = Path(__file__).parents[2]
IMAGE = base64.b64encode((ROOT / "examples" / "navy.png").read_bytes()).decode()
CHAT = {
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
                {"type": "text", "text": "what is it?"},
            ],
        }
    ]
}


@pytest.mark.slow
def test_a_chat_follows_its_blocks(tmp_path: Path) -> None:
    folder = prompt_models.write_qwen2_vl(tmp_path)
    with ExitStack() as stack:
        service = stack.enter_context(serving(settings={"models": {"tiny": str(folder)}}))
        workers = stack.enter_context(engines(2))
        publishers = [stack.enter_context(Publisher()) for _ in workers]
        gateway = f"http://127.0.0.1:{(port := free_port())}"
        addresses = [
            address
            for worker, publisher in zip(workers, publishers, strict=True)
            for address in (worker.url, publisher.events)
        ]
        environment = os.environ | {
            "MMHASH": str(service.url),
            "MODEL": "tiny",
            "BLOCK_SIZE": "4",
            "WORKERS": ",".join(addresses),
        }
        command = ["-m", "uvicorn", "examples.routing_gateway:app", "--port", str(port)]
        process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment)
        stack.callback(process.wait)
        stack.callback(process.kill)
        with service.new_client() as client:
            query = {"model": "tiny", "engine": "vllm", "block_size": "4", "request": "true"}
            plan = client.post("/plan", params=query, json=CHAT).json()
        first = _send(gateway)
        assert json.loads(first["body"]) == plan["request"]
        until = time.monotonic() + TIMEOUT_S
        while _send(gateway)["worker"] != "w1":  # events arrive some time after they are published
            publishers[1].publish(stored(*plan["event_ids"], size=4))
            assert time.monotonic() < until
        refused = httpx.post(f"{gateway}/v1/chat/completions", json=CHAT | {"status": 400})
        assert refused.status_code == 400  # by the engine


def _send(gateway: str) -> dict[str, str]:
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            response = httpx.post(f"{gateway}/v1/chat/completions", json=CHAT, timeout=TIMEOUT_S)
        except httpx.ConnectError:
            assert time.monotonic() < until
            time.sleep(0.05)
            continue
        answer: dict[str, str] = response.raise_for_status().json()
        return answer
