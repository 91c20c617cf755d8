"""Long prompts share one thread. Media count by the tokens that they take."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from mmhash_service.http.app import create_app
from mmhash_service.resources import Resources
from mmhash_service.settings import ModelSource, Settings
from tests.support import in_process, prompt_models
from tests.support.images import encode, image_part

QUERY = {"model": "tiny", "engine": "vllm", "model_id": "tiny"}
ENLARGED = {"min_pixels": 784 * 12_000, "max_pixels": 784 * 12_000}


@pytest.fixture
def long_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client, and a list of the plans in the thread for long prompts."""
    folder = prompt_models.write_qwen2_vl(tmp_path)
    app = create_app(Settings(models={"tiny": ModelSource(path=folder)}, decoders=1))
    prompts = Resources.of_app(app).prompts
    seen: list[Any] = []
    run = prompts.long.run

    async def note_and_run(function: Any, *arguments: Any) -> Any:
        seen.append(function)
        return await run(function, *arguments)

    monkeypatch.setattr(prompts.long, "run", note_and_run)
    with in_process.running(app) as server:
        yield server.client, seen


def plan(client: httpx.Client, images: int, **more: Any) -> int:
    parts = [image_part(encode(Image.new("RGB", (30, 30 + one)))) for one in range(images)]
    body = {"messages": [{"role": "user", "content": parts}], **more}
    answer = client.post("/plan", params=QUERY, json=body)
    assert answer.status_code == 200, answer.text
    return len(answer.json()["token_ids"])


def test_many_small_images_are_a_short_prompt(long_plans: Any) -> None:
    client, seen = long_plans
    assert plan(client, 20) < 1000
    assert not seen


def test_options_that_enlarge_small_images_make_the_prompt_long(long_plans: Any) -> None:
    client, seen = long_plans
    assert plan(client, 6, mm_processor_kwargs=ENLARGED) > 64 << 10
    assert len(seen) == 1
