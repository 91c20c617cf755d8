"""The JSON of `POST /route`."""

from collections.abc import Iterator

import httpx
import pytest

from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support import in_process, prompt_models

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Bonjour à tous."}]}


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service with a model and one worker, which nobody answers."""
    folder = prompt_models.write_qwen2_vl(tmp_path_factory.mktemp("tiny"))
    settings = Settings(models={"tiny": folder}, decoders=1)
    gateway = GatewaySettings(worker_list=("http://127.0.0.1:9,engine=vllm@0.32.0",))
    with in_process.running(create_app(settings, gateway)) as server:
        yield server.client


def test_the_request_comes_back_with_its_plan_or_without(router: httpx.Client) -> None:
    answer = router.post("/route", json=CHAT).json()
    assert answer["plan"]["tokens"] > 0
    assert answer["request"] == CHAT
    unplanned = {"model": "tiny", "messages": []}
    answer = router.post("/route", json=unplanned).json()
    assert (answer["plan"], answer["request"]) == (None, unplanned)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "tiny", "messages": [{"role": "user", "content": "\xff"}]}',
        b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "x": "\xff"}',
        b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "x": NaN}',
        b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}]} x',
        b'[{"model": "tiny", "messages": [{"role": "user", "content": "x"}]}]',
    ],
)
def test_a_body_that_is_not_json_has_no_plan(router: httpx.Client, body: bytes) -> None:
    answer = router.post("/route", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["title"]) == (422, "Invalid JSON")
