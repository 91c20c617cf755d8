"""mmhash inside running engines: installed by pip, switched on by MMHASH_PLUGIN."""

import base64
import io
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import openai
import pytest
from PIL import Image

import mmhash
from mmhash.prompts import Model
from mmhash.verify import verify_engine
from tests.live import fork_server, prompts
from tests.live.conftest import TENANTS
from tests.live.engines import Engine, variables_of
from tests.live.environments import Environment
from tests.support.gateway import gateway_before
from tests.support.waiting import wait_until

FORMATS = ("PNG", "BMP", "JPEG", "WEBP", "GIF", "TIFF")


class File(NamedTuple):
    """An encoded image."""

    data: bytes
    format: str

    @property
    def url(self) -> str:
        return prompts.data_url(self.data, self.format)


def image_file(format_: str = "PNG") -> File:
    """Return an image that no engine has seen."""
    pixels = np.random.default_rng().integers(0, 256, (112, 112, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format_)
    return File(buffer.getvalue(), format_)


class Gateway(NamedTuple):
    """An OpenAI client and a plain client of the gateway in front of an engine."""

    client: openai.OpenAI
    plain: httpx.Client


@pytest.fixture(scope="module")
def gateway(plugged: Engine) -> Iterator[Gateway]:
    worker = (
        f"{plugged.url},events={plugged.events.endpoint},engine={plugged.spelling},"
        f"block_size={plugged.block_size}"
    )
    settings = {
        "models": {"tiny": str(plugged.environment.model(plugged.model))},
        "gateway.health_timeout_s": "30",
    }
    if plugged.name == "sglang":
        settings |= {"tag_secrets": [prompts.SECRET.hex()], "tenants": TENANTS}
    with (
        gateway_before([worker], settings=settings) as service,
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", timeout=120) as client,
        service.new_client() as plain,
    ):
        wait_until(lambda: plain.get("/workers").json()["workers"][0]["connected"])
        yield Gateway(client, plain)


def chat(files: list[File], text: str = "") -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": file.url}} for file in files
    ]
    parts.append({"type": "text", "text": text or secrets.token_hex(60)})
    return {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": parts}]}


def tool() -> dict[str, Any]:
    """Return a tool that no engine has seen. The prompt begins with the tool."""
    parameters = {"type": "object", "properties": {"place": {"type": "string"}}}
    name = f"look_{secrets.token_hex(4)}"
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def names(engine: Engine, body: dict[str, Any]) -> list[int]:
    """Return the names of a chat's whole blocks from its plan. vLLM names images by their files."""
    directory = engine.environment.model(engine.model)
    named: dict[str, Any] = {"server": "mmhash"}
    if engine.name == "vllm":
        named = {"hashes": "engine", "model_id": str(directory)}
    plan = Model.load(directory).plan(
        body, engine=engine.spelling, block_size=engine.block_size, **named
    )
    assert len(plan.event_ids) == len(plan.token_ids) // engine.block_size
    return plan.event_ids


def skip_qwen3(engine: Engine) -> None:
    if engine.model == "qwen3_vl":
        pytest.skip("this model takes no hashes from callers")


def skip_vllm(engine: Engine) -> None:
    if engine.name == "vllm":
        pytest.skip("this engine has no server that reports the plugin's features")


def unsigned(ids: list[int]) -> set[int]:
    return {one % (1 << 64) for one in ids}


@pytest.mark.parametrize(
    ("formats", "tools"),
    [*(((format_,), 0) for format_ in FORMATS), (FORMATS[:3], 2), (FORMATS[3:], 2)],
)
def test_chats_store_the_blocks_that_their_plan_names(
    plugged: Engine, gateway: Gateway, formats: tuple[str, ...], tools: int
) -> None:
    body = chat([image_file(format_) for format_ in formats])
    if tools:
        body["tools"] = [tool() for _ in range(tools)]
    expected = names(plugged, body)
    plugged.events.settle()
    usage = gateway.client.chat.completions.create(**body).usage
    assert usage is not None
    details = usage.prompt_tokens_details
    known = (details.cached_tokens or 0) // plugged.block_size if details else 0
    stored = prompts.published(plugged.events.wait(len(expected) - known))
    assert unsigned(expected[known:]) == unsigned(stored)
    assert known * plugged.block_size <= (96 if tools else 0)  # the text before the tool's name


def _as_response(files: list[File], text: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"type": "input_image", "detail": "auto", "image_url": file.url} for file in files
    ]
    parts.append({"type": "input_text", "text": text})
    return {
        "model": "tiny", "max_output_tokens": 16, "store": False,
        "input": [{"role": "user", "content": parts}],
    }  # fmt: skip


def _as_message(files: list[File], text: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": f"image/{file.format.lower()}",
                "data": base64.b64encode(file.data).decode(),
            },
        }
        for file in files
    ]
    parts.append({"type": "text", "text": text})
    return {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": parts}]}


@pytest.mark.parametrize(
    ("path", "form"), [("/responses", _as_response), ("/messages", _as_message)]
)
def test_other_routes_give_the_names_of_a_chat(
    plugged: Engine,
    gateway: Gateway,
    path: str,
    form: Callable[[list[File], str], dict[str, Any]],
) -> None:
    files, text = [image_file(), image_file()], secrets.token_hex(60)
    expected = names(plugged, chat(files, text))
    plugged.events.settle()
    gateway.client.post(path, body=form(files, text), cast_to=object)
    stored = unsigned(prompts.published(plugged.events.wait(len(expected))))
    assert unsigned(expected) <= stored  # a response of 16 tokens may fill one more block


def test_a_video_has_the_key_of_its_file(plugged: Engine) -> None:
    if plugged.model == "qwen3_vl":
        pytest.skip("prompts of this model have the time of each frame")
    prompt = prompts.Prompt((prompts.film(),))
    body = prompts.body(plugged, prompt)
    plugged.events.settle()
    if plugged.name == "vllm":
        del body["messages"][0]["content"][0]["uuid"]
        ids = plugged.chat(body)["prompt_token_ids"]
    else:
        del body["mm_hashes"]
        ids = plugged.post("/generate", body).json()["prompt_token_ids"]
    expected = prompts.names(plugged, prompt, ids)
    stored = unsigned(prompts.published(plugged.events.wait(len(expected))))
    assert unsigned(expected) <= stored


def test_the_server_says_what_is_on(plugged: Engine) -> None:
    skip_vllm(plugged)
    answer = plugged.client.get("/mmhash").json()
    assert answer == {"version": mmhash.__version__, "features": ["guard", "keys", "tenants"]}


def test_a_gateway_plans_chats_whole_and_leaves_them_alone(
    plugged: Engine, gateway: Gateway
) -> None:
    """The gateway finds the plugin by itself."""
    body = chat([image_file(), image_file("JPEG")])
    (state,) = gateway.plain.get("/workers").json()["workers"]
    assert state["plugin"] == (["guard", "keys", "tenants"] if plugged.name == "sglang" else None)
    routed = gateway.plain.post("/route", json=body).json()
    assert routed["request"] == body
    planned = routed["plan"]["blocks"] * plugged.block_size
    assert planned > routed["plan"]["tokens"] - plugged.block_size
    gateway.client.chat.completions.create(**body)

    def matched() -> int:
        (worker,) = gateway.plain.post("/route", json=body).json()["workers"]
        return int(worker["matched_tokens"])

    wait_until(lambda: matched() == planned)
    usage = gateway.client.chat.completions.create(**body).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens >= planned - plugged.block_size


def test_verify_engine_checks_the_names_of_the_plugin(plugged: Engine) -> None:
    skip_vllm(plugged)
    report = verify_engine(plugged.url, plugged.events.endpoint)
    assert report.is_correct, report.line()
    assert report.server == "mmhash"
    assert report.plugin == ("guard", "keys", "tenants")


def test_each_tenant_has_names_of_its_own(plugged: Engine, gateway: Gateway) -> None:
    skip_vllm(plugged)
    body = chat([image_file()])
    tenants: tuple[dict[str, str], ...] = ({}, {"x-mmhash-tenant": "acme"})
    stored = []
    for headers in tenants:
        plugged.events.settle()
        gateway.client.chat.completions.create(**body, extra_headers=headers)

        def matched(headers: dict[str, str] = headers) -> int:
            routed = gateway.plain.post("/route", json=body, headers=headers).json()
            return int(routed["workers"][0]["matched_tokens"])

        planned = len(names(plugged, body)) * plugged.block_size
        wait_until(lambda: matched() == planned)  # noqa: B023
        stored.append(unsigned(prompts.published(plugged.events.take())))
    assert not stored[0] & stored[1]


@pytest.fixture
def mode(plugged: Engine) -> Iterator[Path]:
    """The file that breaks the plugin."""
    file = plugged.log.with_name("mode")
    yield file
    file.write_text("fine")


def test_requests_are_answered_whatever_the_plugin_does(plugged: Engine, mode: Path) -> None:
    """The plugin raises, or is slow, or gets a tag that is signed with another secret."""
    skip_qwen3(plugged)
    is_vllm = plugged.name == "vllm"
    prompt = prompts.Prompt((prompts.film() if is_vllm else prompts.image(),))
    body = prompts.body(plugged, prompt)
    tags = prompts.tags(plugged, prompt, "victim", secret=bytes(32))
    if is_vllm:
        route = "/v1/chat/completions"
        body["messages"][0]["content"][0]["uuid"] = tags[0]
    else:
        route = "/generate"
        body["mm_hashes"] = tags
    text = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}

    def answer() -> int:
        given = plugged.post(route, body)
        assert given.status_code == 200, given.text[:2000]
        # Do not compare the text: a partly cached prompt may give another token.
        reply = given.json()
        return (reply.get("usage") or reply["meta_info"])["prompt_tokens"]

    def failures() -> int:
        return plugged.log.read_text().count("mmhash leaves a request to the engine")

    expected, before = answer(), failures()
    mode.write_text("raises")
    assert [answer(), answer()] == [expected] * 2
    mode.write_text("slow")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(answer)
        for _ in range(3):  # other requests do not wait for the slow one
            plugged.chat(text)
            assert not slow.done()
        assert slow.result() == expected
    assert failures() == before + 1


def test_sglang_ends_if_the_guard_would_have_no_effect(plugin_site: Path) -> None:
    status, output = _load_plugins(plugin_site, MMHASH_PLUGIN="guard", SGLANG_RUST_SERVER="1")
    assert status != 0
    assert "MMHASH_PLUGIN=guard has no effect under SGLANG_RUST_SERVER" in output


def test_sglang_loads_no_plugin_that_the_operator_does_not_name(plugin_site: Path) -> None:
    status, output = _load_plugins(plugin_site, MMHASH_PLUGIN="keys", SGLANG_PLUGINS="other")
    assert status == 0
    assert "mmhash is on" not in output


def _load_plugins(site: Path, **settings: str) -> tuple[int, str]:
    """Load the plugins of SGLang as a server does when it starts."""
    environment = Environment("sglang", "0.5.23")
    environment.build_or_skip()
    return fork_server.run(
        [environment.command("python"), "-c", "import sglang.srt.plugins as p; p.load_plugins()"],
        env=variables_of() | {"PYTHONPATH": str(site)} | settings,
        captured=(1, 2),
    )
