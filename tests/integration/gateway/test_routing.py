"""A request goes to the worker that has its prefix cached, according to real KV events."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from PIL import Image

from mmhash.prompts import Model, Plan
from mmhash.tags import TENANT_TAG_HEADER, open_tag, tenant_key
from tests.live import models
from tests.support.gateway import EngineProcess, engines, gateway_before, replace
from tests.support.images import encode, image_part
from tests.support.kv_publisher import CLEARED, Publisher, stored
from tests.support.scripted import ScriptedServer
from tests.support.service import count
from tests.support.waiting import wait_until

PATH = "/v1/chat/completions"
ENGINE = "vllm@0.32.0"
SECRET = "11" * 32


class Fleet(NamedTuple):
    """Two small engines with their publishers, and the gateway's client."""

    engines: Sequence[EngineProcess | ScriptedServer]
    publishers: list[Publisher]
    client: httpx.Client

    def states(self) -> list[dict[str, Any]]:
        return self.client.get("/workers").json()["workers"]

    def publish(self, number: int, plan: Plan) -> None:
        """Publish that a worker has a plan's blocks, and wait until the gateway knows."""
        before = self.states()[number]["blocks"]
        self.publishers[number].publish(stored(*plan.event_ids))
        wait_until(lambda: self.states()[number]["blocks"] > before)

    def matched(self, request: dict[str, Any]) -> list[int]:
        """Return how many of a request's tokens each worker has."""
        answer = self.client.post("/route", json=request)
        assert answer.status_code == 200, answer.text
        tokens = {one["url"]: one["matched_tokens"] for one in answer.json()["workers"]}
        return [tokens[engine.url] for engine in self.engines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    models.write("qwen2_vl", folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return Model.load(folder)


@contextmanager
def fleet_of(
    workers: Sequence[EngineProcess | ScriptedServer],
    folder: Path,
    engine: str = ENGINE,
    **settings: Any,
) -> Iterator[Fleet]:
    with ExitStack() as stack:
        publishers = [stack.enter_context(Publisher()) for _ in workers]
        specs = [
            f"{one.url},events={its.events},replay={its.replay},engine={engine},block_size=16"
            for one, its in zip(workers, publishers, strict=True)
        ]
        chosen = {"models": {"tiny": str(folder)}} | settings
        gateway = stack.enter_context(gateway_before(specs, settings=chosen))
        fleet = Fleet(workers, publishers, stack.enter_context(gateway.new_client()))
        wait_until(lambda: all(one["connected"] and one["healthy"] for one in fleet.states()))
        yield fleet


@pytest.fixture(scope="module")
def workers() -> Iterator[list[EngineProcess]]:
    """Two small engines, the workers of all gateways here."""
    with engines(2) as started:
        yield started


@pytest.fixture(scope="module")
def fleet(workers: list[EngineProcess], folder: Path) -> Iterator[Fleet]:
    with fleet_of(workers, folder) as fleet:
        yield fleet


@pytest.fixture(autouse=True)
def _empty_caches(request: pytest.FixtureRequest) -> None:
    if "fleet" in request.fixturenames:
        fleet: Fleet = request.getfixturevalue("fleet")
        for publisher in fleet.publishers:
            publisher.publish(CLEARED)
        # The gateway expects the blocks of a request until a second after its response.
        wait_until(
            lambda: not any(one["blocks"] or one["expected_blocks"] for one in fleet.states())
        )


def chat(text: str, *images: bytes) -> dict[str, Any]:
    content = [*map(image_part, images), {"type": "text", "text": text * 40}]
    return {"model": "tiny", "messages": [{"role": "user", "content": content}]}


def picture(color: str, side: int = 84) -> bytes:
    return encode(Image.new("RGB", (side, side), color))


def test_a_text_goes_to_the_worker_that_has_it(fleet: Fleet, model: Model) -> None:
    for number, text in enumerate(["the first prompt ", "another prompt "]):
        plan = model.plan(chat(text), ENGINE, block_size=16)
        fleet.publish(number, plan)
        matched = fleet.matched(chat(text))
        assert matched[number] == 16 * len(plan.blocks) > 0
        assert matched[1 - number] == 0
        for _ in range(3):
            answer = fleet.client.post(PATH, json=chat(text))
            assert answer.json()["worker"] == f"w{number}"


def lists_adapter(path: str) -> ScriptedServer:
    """Return an engine that lists a LoRA adapter as vLLM does."""
    base = {"id": "tiny", "root": "/models/tiny", "parent": None}
    cards = [base, {"id": "adapter", "root": path, "parent": "tiny"}]
    listed = json.dumps({"data": cards}).encode()
    return ScriptedServer((200, {}, b"{}"), by_path={"/v1/models": (200, {}, listed)})


@pytest.mark.parametrize("release", [pytest.param("0.30.0", marks=pytest.mark.slow), "0.32.0"])
def test_a_request_for_an_adapter_has_blocks_of_its_own(
    folder: Path, model: Model, release: str
) -> None:
    engine, request = f"vllm@{release}", chat("a prompt for both ")
    lora = {"lora": "adapter", "lora_path": "/adapters/1"}
    with (
        lists_adapter("/adapters/1") as one,
        lists_adapter("/adapters/1") as two,
        fleet_of([one, two], folder, engine) as fleet,
    ):
        plan = model.plan(request, engine, block_size=16)
        fleet.publish(0, plan)
        fleet.publish(1, model.plan(request, engine, block_size=16, **lora))
        whole = 16 * len(plan.blocks)
        assert fleet.matched(request) == [whole, 0]
        assert fleet.matched(request | {"model": "adapter"}) == [0, whole]


def test_an_image_goes_to_the_worker_that_has_it(fleet: Fleet, model: Model) -> None:
    for number, color in enumerate(["red", "blue"]):
        request = chat("describe it ", picture(color))
        plan = model.plan(request, ENGINE, block_size=16)
        fleet.publish(number, plan)
        answer = fleet.client.post(PATH, json=request)
        assert answer.json()["worker"] == f"w{number}"
        sent = json.loads(answer.json()["body"])
        assert sent == plan.request  # its hash gives the engine the same names
        assert sent["messages"][0]["content"][0]["uuid"]
    assert fleet.matched(chat("describe it ", picture("green"))) == [0, 0]
    assert count(fleet.client, "mmhash_gateway_tokens_total", cached="yes") > 0


@pytest.mark.slow
def test_a_worker_that_leaves_and_joins_again_is_indexed_again(
    workers: list[EngineProcess], folder: Path, model: Model, tmp_path: Path
) -> None:
    file, request = tmp_path / "workers", chat("stays in its cache ")
    ids = model.plan(request, ENGINE, block_size=16).event_ids
    first, second = workers
    settings = {"models": {"tiny": str(folder)}}
    with ExitStack() as stack:
        publisher = stack.enter_context(Publisher())
        spec = f"{first.url},events={publisher.events},replay={publisher.replay},engine={ENGINE}"
        file.write_text(f"{spec},block_size=16\n{second.url}\n")
        gateway = stack.enter_context(
            gateway_before([], "--worker-file", str(file), settings=settings)
        )
        fleet = Fleet([first], [publisher], stack.enter_context(gateway.new_client()))

        def held() -> dict[str, int]:
            return {one["url"]: one["blocks"] for one in fleet.states()}

        wait_until(lambda: fleet.states()[0]["connected"])
        publisher.publish(stored(*ids))
        wait_until(lambda: held() == {first.url: len(ids), second.url: 0})
        replace(file, f"{second.url}\n")
        wait_until(lambda: held() == {second.url: 0})
        routed = fleet.client.post("/route", json=request).json()["workers"]
        assert [one["url"] for one in routed] == [second.url]
        replace(file, f"{spec},block_size=16\n{second.url}\n")
        wait_until(lambda: held() == {first.url: len(ids), second.url: 0})  # from a replay
        assert fleet.matched(request) == [16 * len(ids)]
        replace(file, f"{spec},block_size=32\n{second.url}\n")  # names other blocks
        wait_until(lambda: fleet.matched(request) == [0])


def test_keys_are_signed_for_workers_that_run_the_guard(
    workers: list[EngineProcess], folder: Path, model: Model
) -> None:
    settings = {"tag_secrets": [SECRET]}
    with fleet_of(workers, folder, **settings) as fleet:
        request = chat("describe it ", picture("red"))
        sent = json.loads(fleet.client.post(PATH, json=request).json()["body"])
        (tag,) = sent.pop("mmhash_tags")
        plan = model.plan(request, ENGINE)
        assert sent == plan.request
        key = open_tag(tag, engine="vllm", tenant=None, secrets=[bytes.fromhex(SECRET)])
        assert key == plan.items[0].key


@pytest.mark.slow
def test_a_worker_with_the_plugin_is_planned_whole_and_gets_no_hash(folder: Path) -> None:
    """The gateway asks a worker about the plugin whenever the worker becomes healthy."""
    engine = EngineProcess("plugged")
    engine.plugin = "guard,keys"
    try:
        engine.start()
        with fleet_of([engine], folder, engine="sglang@0.5.23", tag_secrets=[SECRET]) as fleet:
            assert fleet.states()[0]["plugin"] == ["guard", "keys"]
            request = chat("describe it " * 20, picture("red"))
            sent = json.loads(fleet.client.post(PATH, json=request).json()["body"])
            assert sent == request
            plan = Model.load(folder).plan(request, "sglang@0.5.23", server="mmhash", block_size=16)
            fleet.publish(0, plan)
            assert fleet.matched(request) == [16 * len(plan.blocks)] != [0]
            assert len(plan.blocks) == len(plan.token_ids) // 16
            engine.kill()
            wait_until(lambda: not fleet.states()[0]["healthy"])
            engine.plugin = ""
            engine.start()
            wait_until(lambda: fleet.states()[0]["healthy"])
            assert fleet.states()[0]["plugin"] is None
            sent = json.loads(fleet.client.post(PATH, json=request).json()["body"])
            assert "content_hash" in json.dumps(sent)
    finally:
        engine.kill()


@pytest.mark.slow
def test_a_tag_tells_the_plugin_the_tenant_of_a_request(folder: Path) -> None:
    engine = EngineProcess("plugged")
    engine.plugin = "keys,tenants"
    settings = {"tag_secrets": [SECRET], "tenants": {"acme": "11" * 32}}
    headers = {"x-mmhash-tenant": "acme"}
    try:
        engine.start()
        with fleet_of([engine], folder, engine="sglang@0.5.23", **settings) as fleet:
            request = chat("describe it " * 20, picture("red"))
            sent = fleet.client.post(PATH, json=request, headers=headers).json()
            assert json.loads(sent["body"]) == request
            tag = dict(sent["headers"])[TENANT_TAG_HEADER.decode()]
            key = open_tag(tag, engine="sglang", tenant="acme", secrets=[bytes.fromhex(SECRET)])
            assert key == tenant_key("acme")
            plan = Model.load(folder).plan(
                request, "sglang@0.5.23", server="mmhash", block_size=16, tenant=b"\x11" * 32
            )
            fleet.publish(0, plan)

            def matched() -> int:
                routed = fleet.client.post("/route", json=request, headers=headers).json()
                return int(routed["workers"][0]["matched_tokens"])

            wait_until(lambda: matched() == 16 * len(plan.blocks))
            assert fleet.matched(request)[0] < matched()  # only the text before the image
            sent = fleet.client.post(PATH, json=request).json()
            assert TENANT_TAG_HEADER.decode() not in dict(sent["headers"])
    finally:
        engine.kill()


def test_blocks_are_expected_while_a_request_runs(fleet: Fleet) -> None:
    request = chat("not yet published ")
    slow = request | {"stream": True, "mode": "hang-in-stream"}
    with fleet.client.stream("POST", PATH, json=slow):
        (blocks,) = [one["expected_blocks"] for one in fleet.states() if one["expected_blocks"]]
        routed = fleet.client.post("/route", json=request).json()["workers"]
        assert [one["matched_tokens"] for one in routed] == [0, 0]
        assert routed[0]["expected_tokens"] == 16 * blocks
        assert "expected_tokens" not in routed[1]
    wait_until(lambda: not any(one["expected_blocks"] for one in fleet.states()))


def test_an_image_whose_blocks_have_no_names_stays_with_its_worker(
    workers: list[EngineProcess], folder: Path
) -> None:
    """After a chat's image, SGLang publishes names that mmhash cannot compute."""
    with fleet_of(workers, folder, engine="sglang@0.5.23") as fleet:
        urls = {one.name: one.url for one in fleet.engines}
        for color in ("red", "blue", "green", "white"):
            image = picture(color, 336)
            first = fleet.client.post(PATH, json=chat("describe it ", image)).json()["worker"]
            other = chat("and another question ", image)
            routed = fleet.client.post("/route", json=other).json()["workers"]
            assert routed[0]["url"] == urls[first]
            assert routed[0]["expected_tokens"] > 0 == routed[0]["matched_tokens"]
            assert "expected_tokens" not in routed[1]
