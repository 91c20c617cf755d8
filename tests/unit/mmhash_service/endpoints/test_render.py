"""`POST …/render` and `/tokenize`; tests/live compares their answers with vLLM's own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from mmhash.engines import vllm
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.live import models
from tests.support import in_process
from tests.support.images import encode, image_part

CHAT = "/v1/chat/completions/render"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    models.write("qwen2_vl", folder)
    source = {"path": folder, "model_id": "Qwen", "max_model_len": 500}
    settings = Settings(models={"tiny": source})
    with in_process.running(create_app(settings)) as server:
        yield server.client


def image(mode: str = "RGB", kind: str = "PNG") -> tuple[bytes, dict[str, Any]]:
    file = encode(Image.new(mode, (64, 48)), kind)
    return file, image_part(file)


def chat(*parts: dict[str, Any], **members: Any) -> dict[str, Any]:
    text = {"type": "text", "text": "What?"}
    return {"messages": [{"role": "user", "content": [*parts, text]}], **members}


def error_of(client: httpx.Client, body: dict[str, Any], path: str = CHAT) -> dict[str, Any]:
    answer = client.post(path, json=body)
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == answer.status_code
    return error


def test_images_have_the_names_of_vllm(client: httpx.Client) -> None:
    (plain, one), (gray, other) = image(), image("L")
    third = one | {"uuid": "caller's"}
    features = client.post(CHAT, json=chat(one, other, third)).json()["features"]
    assert features["mm_hashes"] == {
        "image": [
            vllm.image_identifier(plain, is_rgb=True, model_id="Qwen", version="0.32.0"),
            vllm.image_identifier(gray, is_rgb=False, model_id="Qwen", version="0.32.0"),
            "caller's",
        ]
    }
    assert len(features["mm_placeholders"]["image"]) == 3
    assert features["kwargs_data"] is None


def test_a_responses_request_is_answered_as_its_chat(client: httpx.Client) -> None:
    _, one = image()
    image_part = {"type": "input_image", "image_url": one["image_url"]["url"], "detail": "auto"}
    content = [image_part, {"type": "input_text", "text": "What?"}]
    body = {"input": [{"role": "user", "content": content}], "max_output_tokens": 5, "n": 3}
    answer = client.post("/v1/responses/render", json=body).json()
    of_chat = client.post(CHAT, json=chat(one, max_tokens=5)).json()
    shared = ("token_ids", "features")
    assert {name: answer[name] for name in shared} == {name: of_chat[name] for name in shared}
    assert answer["sampling_params"] == of_chat["sampling_params"] | {"extra_args": {}}
    assert answer["request_id"].startswith("resp_")
    body["previous_response_id"] = "resp_1"
    assert error_of(client, body, "/v1/responses/render")["param"] == "previous_response_id"


def test_each_release_has_its_own_members_and_names(tmp_path: Path) -> None:
    models.write("qwen2_vl", tmp_path)
    source = {"path": tmp_path, "model_id": "Qwen"}
    settings = Settings(models={"tiny": source}, render_version="0.28.0")
    encoded, part = image()
    with in_process.running(create_app(settings)) as server:
        answer = server.client.post(CHAT, json=chat(part, watermarking=False)).json()
    named = vllm.image_identifier(encoded, is_rgb=True, model_id="Qwen", version="0.28.0")
    assert answer["features"].keys() == {"mm_hashes", "mm_placeholders", "kwargs_data"}
    assert answer["features"]["mm_hashes"] == {"image": [named]}
    assert answer["assistant_tokens_mask"] is None
    assert "output_mode" not in answer
    assert "watermarking" not in answer["sampling_params"]


def test_an_image_without_a_known_name_is_refused(client: httpx.Client) -> None:
    options = {"media_io_kwargs": {"image": {"image_mode": "L"}}}
    assert error_of(client, chat(image()[1], **options))["type"] == "NotImplementedError"


@pytest.mark.parametrize(
    ("members", "status", "parameter"),
    [
        ({"mm_payload": "tensors"}, 400, "mm_payload"),
        ({"return_mm_kwargs": True}, 400, "mm_payload"),
        ({"return_token_offsets": True}, 501, "return_token_offsets"),
        ({"response_format": {"type": "json_object"}}, 501, "response_format"),
        ({"temperature": "hot"}, 400, "body.temperature"),
        ({"max_tokens": 501}, 400, "max_tokens"),
        ({"model": "other"}, 404, "model"),
        ({"messages": []}, 400, None),
        ({"chat_template": "{{ 1 }}"}, 501, None),
    ],
)
def test_a_refusal_names_its_reason(
    client: httpx.Client, members: dict[str, Any], status: int, parameter: str | None
) -> None:
    error = error_of(client, chat(image()[1], **members))
    assert (error["code"], error["param"]) == (status, parameter)


def test_a_batch_of_prompts_has_an_answer_for_each(client: httpx.Client) -> None:
    body = {"prompt": ["One", "two"], "request_id": "me"}
    answers = client.post("/v1/completions/render", json=body).json()
    assert [one["request_id"] for one in answers] == ["cmpl-me-0", "cmpl-me-1"]
    single = client.post("/v1/completions/render", json={"prompt": "two"}).json()
    assert answers[1]["token_ids"] == single[0]["token_ids"]


def test_tokens_have_texts_if_these_are_asked_for(client: httpx.Client) -> None:
    answer = client.post("/tokenize", json={"prompt": "Hello", "return_token_strs": True}).json()
    assert answer["token_strs"] == list("Hello")
    assert (answer["count"], answer["max_model_len"]) == (5, 500)
    assert error_of(client, {}, "/tokenize")["code"] == 400


def test_defaults_are_those_of_the_model(client: httpx.Client) -> None:
    params = client.post(CHAT, json=chat()).json()["sampling_params"]
    tokens = client.post("/tokenize", json=chat()).json()["count"]
    assert params["max_tokens"] == 500 - tokens
