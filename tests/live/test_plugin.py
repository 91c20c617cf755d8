"""mmhash inside running engines: installed by pip, switched on by MMHASH_PLUGIN."""

import base64
import io
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openai
import pytest
from PIL import Image

import mmhash
from mmhash.digest import Digest
from mmhash.engines import sglang, vllm
from mmhash.prompts import Model
from mmhash.tags import sign_tag
from mmhash.verify import verify_engine
from tests.live import prompts
from tests.live.engines import Engine, running
from tests.live.environments import Environment
from tests.support.gateway import gateway_before
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
RELEASES = (
    ("sglang", "0.5.23", "qwen2_vl"),
    ("sglang", "0.5.23", "qwen3_vl"),  # takes no caller's hashes
    ("sglang", "0.5.20", "qwen2_vl"),
    ("vllm", "0.32.0", "qwen2_vl"),
)
FORMATS = ("PNG", "BMP", "JPEG", "WEBP", "GIF")


class File(NamedTuple):
    """An encoded image, and its key."""

    data: bytes
    format: str

    @property
    def key(self) -> Digest:
        return mmhash.key(self.data)

    @property
    def url(self) -> str:
        return prompts.data_url(self.data, self.format)


def image_file(format_: str = "PNG") -> File:
    """Return an image that no engine has seen."""
    pixels = np.random.default_rng().integers(0, 256, (112, 112, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format_)
    return File(buffer.getvalue(), format_)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel: engines find its entry points there."""
    folder = tmp_path_factory.mktemp("plugin")
    build = ("build", "--wheel", "--no-isolation", "--outdir", str(folder))
    for command in (build, ("pip", "install", "--no-deps", "--target", str(folder / "site"))):
        wheels = list(map(str, folder.glob("*.whl")))
        subprocess.run(
            [sys.executable, "-m", *command, *wheels],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return folder / "site"


@pytest.fixture(scope="module", params=RELEASES, ids="@".join)
def hooked(
    request: pytest.FixtureRequest, site: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """An engine with keys and the guard."""
    name, release, model = request.param
    environment = Environment(name, release)
    environment.build_or_skip()
    variables = {
        "PYTHONPATH": str(site),
        "MMHASH_PLUGIN": "keys,guard",
        "MMHASH_GUARD_SECRETS": prompts.SECRET.hex(),
    }
    log = tmp_path_factory.mktemp("plugin") / "engine.log"
    options = ["--load-format", "dummy", "--enable-multimodal"] if model == "qwen3_vl" else []
    with running(environment, model, *options, log=log, variables=variables) as engine:
        assert "mmhash is on" in log.read_text()
        engine.name_of_setup = model
        yield engine


def chat(files: list[File], text: str = "") -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": file.url}} for file in files
    ]
    parts.append({"type": "text", "text": text or secrets.token_hex(60)})
    return {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": parts}]}


def names(engine: Engine, body: dict[str, Any]) -> list[int]:
    """Return the names of a chat's whole blocks, by its plan."""
    plan = Model.load(engine.environment.model(engine.name_of_setup)).plan(
        body,
        engine=engine.spelling,
        block_size=engine.block_size,
        server="mmhash" if engine.name == "sglang" else "python",
    )
    assert len(plan.event_ids) == len(plan.token_ids) // engine.block_size
    return plan.event_ids


def skip_vllm(engine: Engine) -> None:
    if engine.name == "vllm":
        pytest.skip("its gateway names media by uuids, with or without the plugin")


def unsigned(ids: list[int]) -> set[int]:
    return {one % (1 << 64) for one in ids}


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("format_", FORMATS)
def test_chats_store_the_blocks_that_their_keys_name(
    hooked: Engine, format_: str, count: int
) -> None:
    files = [image_file(format_) for _ in range(count)]
    body = chat(files)
    expected = names(hooked, body)
    hooked.events.settle()
    hooked.chat(body)
    stored = prompts.published(hooked.events.wait(len(expected)))
    assert unsigned(expected) <= unsigned(stored)


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
    ("path", "form"), [("/v1/responses", _as_response), ("/v1/messages", _as_message)]
)
def test_other_routes_give_the_names_of_a_chat(
    hooked: Engine, path: str, form: Callable[[list[File], str], dict[str, Any]]
) -> None:
    files, text = [image_file(), image_file()], secrets.token_hex(60)
    expected = names(hooked, chat(files, text))
    hooked.events.settle()
    answer = hooked.post(path, form(files, text))
    assert answer.status_code == 200, answer.text[:500]
    stored = prompts.published(hooked.events.wait(len(expected)))
    assert unsigned(expected) <= unsigned(stored)


def test_a_hash_that_a_caller_forges_finds_nothing(hooked: Engine) -> None:
    """The attacker sends another image under the key of the victim's."""
    victim, other = image_file(), image_file()
    text = secrets.token_hex(60)
    hooked.chat(chat([victim], text))
    body = chat([other], text)
    if hooked.name == "vllm":
        body["messages"][0]["content"][0]["uuid"] = vllm.uuid(victim.key)
        answer = hooked.post("/v1/chat/completions", body)
        bound = hooked.block_size
    else:
        template = prompts.IMAGE_TEXT + text
        encoded = {name: [base64.b64encode(file.data).decode()] for name, file in
                   (("victim", victim), ("other", other))}  # fmt: skip
        request = {"text": template, "sampling_params": {"max_new_tokens": 1}}
        hooked.post("/generate", {**request, "image_data": encoded["victim"]})
        forged = {"image_data": encoded["other"], "mm_hashes": [sglang.mm_hash(victim.key)]}
        answer = hooked.post("/generate", {**request, **forged})
        bound = 0
    assert answer.status_code == 200, answer.text[:500]
    assert prompts.cached(answer.json()) <= bound


def test_the_server_says_what_is_on(hooked: Engine) -> None:
    skip_vllm(hooked)
    answer = hooked.client.get("/mmhash").json()
    assert answer == {"version": mmhash.__version__, "features": ["guard", "keys"]}


def test_a_gateway_plans_chats_whole_and_leaves_them_alone(hooked: Engine) -> None:
    """It finds the plugin by itself."""
    skip_vllm(hooked)
    worker = (
        f"{hooked.url},events={hooked.events.endpoint},engine={hooked.spelling},"
        f"block_size={hooked.block_size}"
    )
    settings = {
        "models": {"tiny": str(hooked.environment.model(hooked.name_of_setup))},
        "gateway.health_timeout_s": "30",
    }
    body = chat([image_file(), image_file("JPEG")])
    with (
        gateway_before([worker], settings=settings) as gateway,
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", timeout=120) as client,
        gateway.new_client() as plain,
    ):
        (state,) = plain.get("/workers").json()["workers"]
        assert state["plugin"] == ["guard", "keys"]
        wait_until(lambda: plain.get("/workers").json()["workers"][0]["connected"])
        routed = plain.post("/route", json=body).json()
        assert routed["request"] == body
        planned = routed["plan"]["blocks"] * hooked.block_size
        assert planned > routed["plan"]["tokens"] - hooked.block_size
        client.chat.completions.create(**body)
        wait_until(
            lambda: (
                plain.post("/route", json=body).json()["workers"][0]["matched_tokens"] == planned
            )
        )
        usage = client.chat.completions.create(**body).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens >= planned - hooked.block_size


def test_verify_engine_checks_the_names_of_the_plugin(hooked: Engine) -> None:
    skip_vllm(hooked)
    report = verify_engine(hooked.url, hooked.events.endpoint)
    assert report.is_correct, report.line()
    assert report.server == "mmhash"
    assert report.plugin == ("guard", "keys")


@pytest.mark.parametrize(("others", "is_hooked"), [("", True), ("mmhash", True), ("x", False)])
def test_sglang_loads_the_plugins_that_the_operator_names(
    site: Path, others: str, is_hooked: bool
) -> None:
    environment = Environment("sglang", "0.5.23")
    environment.build_or_skip()
    code = (
        "from sglang.srt.plugins import load_plugins; load_plugins();"
        "from sglang.srt.managers.tokenizer_manager import TokenizerManager as manager;"
        "print('hooked', hasattr(manager._tokenize_one_request, '__wrapped__'))"
    )
    chosen = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    settings = {"PYTHONPATH": str(site), "MMHASH_PLUGIN": "keys", "SGLANG_PLUGINS": others}
    done = subprocess.run(
        [environment.command("python"), "-c", code],
        env=chosen | settings | {"SGLANG_USE_CPU_ENGINE": "1", "TRITON_INTERPRET": "1"},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    assert f"hooked {is_hooked}" in done.stdout


def test_a_tag_stands_for_its_key(hooked: Engine) -> None:
    """A gateway may name content by another key, if it signs it."""
    file, key = image_file(), mmhash.key(secrets.token_bytes(8))
    tag = sign_tag(
        key, engine=hooked.name, tenant=None, expires=int(time.time()) + 600,
        secrets=[prompts.SECRET],
    )  # fmt: skip
    for secret_tag, is_expected in ((tag, True), (tag[:-4] + "AAAA", False)):
        body = chat([file])
        hooked.events.settle()
        if hooked.name == "vllm":
            body["messages"][0]["content"][0]["uuid"] = secret_tag
            hooked.chat(body)
            expected = _blocks_by(hooked, body, key)
        else:
            text = prompts.IMAGE_TEXT + secrets.token_hex(60)
            request = {"text": text, "sampling_params": {"max_new_tokens": 1}}
            image = base64.b64encode(file.data).decode()
            request |= {"image_data": [image]}
            hooked.post("/generate", request | {"mm_hashes": [secret_tag]})
            expected = _pages_by(hooked, request, key)
        stored = prompts.published(hooked.events.wait(len(expected)))
        assert (unsigned(expected) <= unsigned(stored)) == is_expected


def _blocks_by(engine: Engine, body: dict[str, Any], key: Digest) -> list[int]:
    plan = Model.load(engine.environment.model("qwen2_vl")).plan(body, engine=engine.spelling)
    (span,) = plan.spans
    items = [vllm.Span(vllm.uuid(key), span.start, span.end - span.start)]
    release = engine.environment.release
    keys = vllm.block_keys(plan.token_ids, engine.block_size, version=release, items=items)
    return [vllm.event_id(one) for one in keys]


def _pages_by(engine: Engine, request: dict[str, Any], key: Digest) -> list[int]:
    model = Model.load(engine.environment.model(engine.name_of_setup))
    plan = model.plan(request, engine=engine.spelling, path="/generate", server="mmhash")
    (span,) = plan.spans
    release = engine.environment.release
    padded = sglang.pad_input_ids(
        list(plan.token_ids), [(span.start, span.end, key)], version=release
    )
    whole = len(padded) // engine.block_size * engine.block_size
    pages = sglang.event_keys(padded[:whole], engine.block_size, version=release)
    return [sglang.event_id(page) for page in pages]
