"""A tenant that guesses another tenant's prompts from how fast they are planned.

Each tenant has its own cache of token ids, and its own names of blocks.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mmhash.engines.vllm import blocks
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support import in_process, prompt_models

TENANTS = {"acme": "11" * 32, "umbrella": "22" * 32}
SECRETS = {None, b"\x11" * 32, b"\x22" * 32}
PATHS = [
    "/plan?model=tiny&request=true&engine=vllm@0.32.0",
    "/route",
]
WORKER = "http://127.0.0.1:9,engine=vllm@0.32.0"


@pytest.fixture
def planner(tmp_path: Path) -> Iterator[Any]:
    folder = prompt_models.write_qwen2_vl(tmp_path / "tiny")
    app = create_app(
        Settings(models={"tiny": folder}, tenants=TENANTS, decoders=1),
        GatewaySettings(worker_list=(WORKER,)),
    )
    with in_process.running(app) as server:
        yield server.client, app.state.resources.models.get("tiny").files.encoder


def chat(*parts: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": "the secret of acme"}, *parts]
    return {"model": "tiny", "messages": [{"role": "user", "content": content}]}


def post(client: Any, path: str, tenant: str | None, request: Any) -> Any:
    headers = {} if tenant is None else {"x-mmhash-tenant": tenant}
    answer = client.post(path, json=request, headers=headers)
    assert answer.status_code == 200
    result = answer.json()
    assert result["plan"] if path != PATHS[0] else result["token_ids"]
    return result


@pytest.mark.parametrize("path", PATHS)
def test_a_text_of_one_tenant_is_not_cached_for_another(planner: Any, path: str) -> None:
    client, encoder = planner
    for tenant in (None, *TENANTS, None, *TENANTS):
        post(client, path, tenant, chat())
    assert {
        tenant for tenant, text in encoder._cached._entries if "the secret of acme" in text
    } == SECRETS
    assert encoder._words._known.keys() == SECRETS
    words = [known.keys() for known in encoder._words._known.values()]
    assert words[0] == words[1] == words[2] != set()


@pytest.mark.parametrize("path", PATHS)
def test_blocks_that_one_tenant_has_named_are_named_again_for_another(
    planner: Any, path: str
) -> None:
    client, _ = planner
    long = chat({"type": "text", "text": "of acme " * 50})
    blocks._kept_keys.cache_clear()
    for tenant in (None, *TENANTS):
        post(client, path, tenant, long)
    first = blocks._kept_keys.cache_info()
    assert first.hits == 0 < first.misses
    for tenant in (None, *TENANTS):
        post(client, path, tenant, long)
    assert blocks._kept_keys.cache_info()[:2] == (first.misses, first.misses)
