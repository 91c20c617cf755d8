"""Plans of a model whose own processor is asked, by a real server with a real helper process."""

import io
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pytest
from PIL import Image

from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.app import create_app
from mmhash_service.settings import ModelSource, Settings
from tests.support import in_process, processed_models
from tests.support.forked_helpers import forked_helpers
from tests.support.images import data_url, encode, image_part
from tests.support.origin import Origin
from tests.support.processed_models import HANGING, HUNGRY, KILLED
from tests.support.service import count

# Three processors: a process imports transformers for them.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    with closing(Origin()) as origin:
        yield origin


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("models")
    hostile = processed_models.write_hostile(folder / "hostile")
    checked = processed_models.write_paddleocr(folder / "checked")
    source = ModelSource(path=hostile, unchecked=True, trust_remote_code=True)
    audio = processed_models.write_qwen2_audio(folder / "audio")
    settings = Settings(
        models={"hostile": source, "checked": checked, "audio": audio},
        url_hosts=(f"127.0.0.1:{origin.port}",),
        url_networks=("127.0.0.0/8",),
    )
    gateway = GatewaySettings(worker_list=["http://127.0.0.1:9,engine=vllm@0.32.0"])
    with forked_helpers(), in_process.running(create_app(settings, gateway)) as server:
        yield server.client


def chat(model: str, *sizes: tuple[int, int]) -> dict[str, Any]:
    images = [image_part(encode(Image.new("RGB", size))) for size in sizes]
    content = [{"type": "text", "text": "Compare these."}, *images]
    return {"model": model, "messages": [{"role": "user", "content": content}]}


AUDIO = {"model": "audio", "engine": "vllm@0.32.0"}


def wav(samples: int, rate: int = 16_000) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, rate, samples, "NONE", ""))
        file.writeframes(bytes(2 * samples))
    return buffer.getvalue()


def inline(clip: bytes) -> str:
    return data_url(clip, "audio/wav")


def clip(url: str) -> dict[str, Any]:
    content = [{"type": "audio_url", "audio_url": {"url": url}}, {"type": "text", "text": "?"}]
    return {"messages": [{"role": "user", "content": content}]}


def plan(client: httpx.Client, model: str, *sizes: tuple[int, int]) -> httpx.Response:
    request = chat(model, *sizes)
    return client.post("/plan", json=request, params={"model": model, "engine": "vllm@0.32.0"})


def route(client: httpx.Client, model: str, size: tuple[int, int]) -> dict[str, Any]:
    return client.post("/route", json=chat(model, size)).json()


def test_each_size_is_asked_for_once(client: httpx.Client) -> None:
    asked = count(client, "mmhash_memo_lookups_total", kind="expansion", source="miss")
    for _ in range(2):
        items = plan(client, "checked", (644, 360), (644, 360), (300, 900)).json()["items"]
        assert [item["grid"] for item in items] == [[1, 26, 46], [1, 26, 46], [1, 64, 22]]
    now = count(client, "mmhash_memo_lookups_total", kind="expansion", source="miss")
    assert now - asked == 2


@pytest.mark.parametrize(("samples", "tokens"), [(16_000, 25), (480_001, 750)])
def test_a_wav_clip_has_the_tokens_of_its_length(
    client: httpx.Client, samples: int, tokens: int
) -> None:
    planned = client.post("/plan", json=clip(inline(wav(samples))), params=AUDIO)
    (item,) = planned.json()["items"]
    assert item["end"] - item["start"] == tokens
    assert item["modality"] == "audio"


def test_a_clip_by_url_is_planned_as_one_in_the_request(
    client: httpx.Client, origin: Origin
) -> None:
    origin.answers["/a.wav"] = Origin.ok(wav(16_000))
    urls = (inline(wav(16_000)), f"http://127.0.0.1:{origin.port}/a.wav")
    plans = [client.post("/plan", json=clip(url), params=AUDIO).json() for url in urls]
    for name in ("token_ids", "spans", "event_ids"):
        assert plans[0][name] == plans[1][name]


def test_a_clip_at_another_rate_is_a_problem(client: httpx.Client) -> None:
    answer = client.post("/plan", json=clip(inline(wav(44_100, rate=44_100))), params=AUDIO)
    assert answer.json()["type"] == "urn:mmhash:problem:unplannable-item"
    assert "not 44100" in answer.text


@pytest.mark.parametrize(
    ("width", "problem"),
    [(KILLED, "processor-unavailable"), (HUNGRY, "unplannable-prompt")],
)
def test_a_processor_that_fails_is_a_problem_of_one_request(
    client: httpx.Client, width: int, problem: str
) -> None:
    failed = plan(client, "hostile", (width, 5))
    assert failed.json()["type"] == f"urn:mmhash:problem:{problem}"
    assert plan(client, "hostile", (9, 5)).status_code == 200


def test_a_request_whose_processor_fails_is_routed_by_load(client: httpx.Client) -> None:
    planned, unplanned = route(client, "checked", (646, 360)), route(client, "hostile", (KILLED, 5))
    assert planned["plan"]["tokens"] > 299
    assert unplanned["plan"] is None
    assert [worker["url"] for worker in unplanned["workers"]] == ["http://127.0.0.1:9"]


def test_a_hanging_processor_stalls_no_other_request(client: httpx.Client) -> None:
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(plan, client, "hostile", (HANGING, 5))
        answered = 0
        while not hanging.done():
            assert plan(client, "checked", (640, 360)).status_code == 200
            answered += 1
    assert hanging.result().json()["type"] == "urn:mmhash:problem:processor-unavailable"
    assert answered > 20
