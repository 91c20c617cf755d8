"""Plans through both clients, from a running service."""

import asyncio
from pathlib import Path

import mmhash
from mmhash.prompts import Model
from tests.live import models
from tests.support.service import TIMEOUT_S, serving

CHAT = {"messages": [{"role": "user", "content": "What is a multimodal cache key?"}]}


def test_both_clients_return_the_librarys_plan(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    models.write("qwen2_vl", folder)
    expected = Model.load(folder).plan(CHAT, "vllm", block_size=8)

    async def ask(url: str) -> mmhash.client.PlannedPrompt:
        async with mmhash.AsyncClient(url, timeout_s=TIMEOUT_S) as client:
            return await client.plan(CHAT, model="tiny", engine="vllm", block_size=8)

    with serving(settings={"models": {"tiny": str(folder)}}) as service:
        with mmhash.Client(service.url, timeout_s=TIMEOUT_S) as client:
            plan = client.plan(CHAT, model="tiny", engine="vllm", block_size=8)
        assert asyncio.run(ask(service.url)) == plan
    assert plan.token_ids == expected.token_ids
    assert plan.blocks == expected.blocks != []
    assert plan.event_ids == expected.event_ids
    assert plan.request == CHAT
