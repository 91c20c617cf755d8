"""The plugin without an engine: its environment variable, and how it changes requests."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.engines.sglang import gpu_hash
from mmhash.plugin import chosen, register_in_sglang, register_in_vllm
from mmhash.plugin.attempt import Attempt
from mmhash.plugin.sglang import Plugin, name_media, set_names
from mmhash.plugin.tags import Tags, TenantTags, tenant_secret
from mmhash.tags import TENANT_TAG_HEADER, sign_tag, tenant_key

SECRET = bytes(range(32))

OWN = 5
"""The engine's own hash of a feature."""


def test_nothing_is_on_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MMHASH_PLUGIN", raising=False)
    assert chosen("SGLang") == frozenset()
    register_in_sglang()  # without the engines: none is imported
    register_in_vllm()


def test_a_misspelled_feature_ends_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_PLUGIN", "keys,guards")
    with pytest.raises(SystemExit, match="'guards'"):
        chosen("SGLang")


def test_the_guard_refuses_the_rust_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_RUST_SERVER", "1")
    monkeypatch.setenv("MMHASH_PLUGIN", "guard")
    with pytest.raises(SystemExit, match="SGLANG_RUST_SERVER"):
        register_in_sglang()
    monkeypatch.setenv("MMHASH_PLUGIN", "keys")
    register_in_sglang()  # logs that it is off


@dataclass
class ServerArgs:
    tokenizer_worker_num: int = 1
    smg_grpc_mode: bool = False
    grpc_mode: bool = False
    encoder_only: bool = False


@pytest.mark.parametrize(
    ("server_args", "option"),
    [
        (ServerArgs(tokenizer_worker_num=2), "--tokenizer-worker-num"),
        (ServerArgs(smg_grpc_mode=True), "--smg-grpc-mode"),
        (ServerArgs(grpc_mode=True), "--grpc-mode"),
        (ServerArgs(encoder_only=True), "--encoder-only"),
    ],
)
def test_the_guard_refuses_servers_that_no_hook_reaches(
    server_args: ServerArgs, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SystemExit, match=option):
        Plugin(frozenset({"guard"})).check_server(server_args)
    Plugin(frozenset({"keys"})).check_server(server_args)
    assert option in caplog.text


def test_the_guard_starts_in_a_plain_server() -> None:
    Plugin(frozenset({"guard"})).check_server(ServerArgs())


@pytest.mark.parametrize("variables", [{"VLLM_USE_RUST_FRONTEND": "1"}, {}])
def test_the_guard_refuses_vllm_s_other_servers(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if not variables:
        monkeypatch.setattr(sys, "argv", ["vllm", "serve", "MODEL", "--grpc"])
    monkeypatch.setenv("MMHASH_PLUGIN", "guard")
    with pytest.raises(SystemExit, match="VLLM_USE_RUST_FRONTEND" if variables else "--grpc"):
        register_in_vllm()
    monkeypatch.setenv("MMHASH_PLUGIN", "keys")
    register_in_vllm()  # logs that it is off


def test_a_step_that_fails_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    attempt = Attempt()
    with caplog.at_level(logging.ERROR):
        assert [attempt.run(int, "no number") for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
    assert attempt.run(int, "7") == 7


def test_a_tag_stands_for_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_GUARD_SECRETS", f'["{SECRET.hex()}"]')
    key = mmhash.key(b"abc")
    expires = int(time.time()) + 60
    tag = sign_tag(key, engine="sglang", tenant=None, expires=expires, secrets=[SECRET])
    tags = Tags("sglang")
    assert tags.key_of(tag) == key
    assert tags.keys_of([tag, tag]) == [key, key]
    assert tags.keys_of([tag, key.hex()]) == []
    assert Tags("vllm").key_of(tag) is None


@pytest.mark.parametrize(
    ("named", "signed", "expected"),
    [
        ("acme", "acme", SECRET),
        ("acme", "other", None),
        ("other", "acme", None),
        ("unknown", "unknown", None),
        ("acme", "", None),
        ("", "", None),
    ],
)
def test_a_tag_names_the_tenant_of_a_request(
    monkeypatch: pytest.MonkeyPatch, named: str, signed: str, expected: bytes | None
) -> None:
    monkeypatch.setenv("MMHASH_GUARD_SECRETS", SECRET.hex())
    secrets = {"acme": SECRET.hex(), "other": SECRET[::-1].hex()}
    monkeypatch.setenv("MMHASH_TENANTS", json.dumps(secrets))
    tag = sign_tag(
        tenant_key(signed),
        engine="sglang",
        tenant=signed or None,
        expires=int(time.time()) + 60,
        secrets=[SECRET],
    )
    headers = [(b"x-mmhash-tenant", named.encode())]
    headers += [(TENANT_TAG_HEADER, tag.encode())] if signed else []
    names = []

    async def app(*_: Any) -> None:
        request = Request(image_data=[b"one"])
        names.append(name_media(request, tenant_secret.get()))

    tags = Tags("sglang")
    assert tags.has_tenants
    asyncio.run(TenantTags(app, tags)({"type": "http", "headers": headers}, None, None))
    assert names == [{"image": [mmhash.key(b"one", tenant=expected)]}]


def test_files_hold_the_secrets_of_tags_and_tenants(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets, tenants = tmp_path / "secrets", tmp_path / "tenants"
    secrets.write_text(f"{SECRET[::-1].hex()}\n{SECRET.hex()}\n")
    tenants.write_text(json.dumps({"acme": SECRET.hex()}, indent=1))
    monkeypatch.setenv("MMHASH_GUARD_SECRETS_FILE", str(secrets))
    monkeypatch.setenv("MMHASH_TENANTS_FILE", str(tenants))
    expires = int(time.time()) + 60
    tag = sign_tag(
        tenant_key("acme"), engine="sglang", tenant="acme", expires=expires, secrets=[SECRET]
    )
    assert Tags("sglang").secret_of("acme", tag) == SECRET


class Modality(Enum):
    IMAGE = auto()
    MULTI_IMAGES = auto()
    AUDIO = auto()


@dataclass
class Item:
    modality: Modality
    hash: int | None = None
    feature: Any = None
    pad_value: int | None = None
    thread: int | None = None

    def set_hash(self, value: int) -> None:
        self.hash = self.pad_value = value
        self.thread = threading.get_ident()

    def set_pad_value(self) -> None:
        if self.pad_value is None:
            self.set_hash(OWN if self.hash is None else self.hash)


@dataclass
class Media:
    url: Any
    detail: str = "auto"
    content_hash: str | None = None


@dataclass
class Request:
    image_data: Any = None
    video_data: Any = None
    audio_data: Any = None
    mm_processor_kwargs: Any = None
    use_audio_in_video: bool = False
    image_max_dynamic_patch: Any = None
    modalities: Any = None
    mm_hashes: Any = None
    names: Any = field(default=None)

    def contains_mm_input(self) -> bool:
        return bool(self.image_data)


@pytest.mark.parametrize(
    "request_",
    [
        Request(image_data=[Media(b"one", detail="high")]),
        Request(image_data=[b"one"], mm_processor_kwargs={"max_pixels": 10}),
        Request(image_data=[b"one"], image_max_dynamic_patch=2),
        Request(image_data=[b"one"], modalities=["multi-images"]),
    ],
)
def test_options_are_part_of_a_name(request_: Request) -> None:
    (key,) = name_media(request_)["image"]
    assert key is not None
    assert key != mmhash.key(b"one")


def test_media_without_a_file_has_no_name() -> None:
    request = Request(image_data=[{"format": "processor_output", "feature": None}, b"two"])
    assert name_media(request) == {"image": [None, mmhash.key(b"two")]}


@dataclass
class Output:
    mm_items: list[Item]
    padded_input_ids: Any


class Processor:
    """Pads the prompt by its own hashes, as Qwen-VL's does."""

    async def process_mm_data_async(self, *, request_obj: Request) -> Output:
        return Output([Item(Modality.IMAGE, hash=7) for _ in request_obj.image_data], [7, 7])


class OnGpu(np.ndarray[Any, Any]):
    """A feature that says that it is on a GPU."""

    is_cuda = True


def _feature(content: bytes, kind: type[np.ndarray[Any, Any]] = np.ndarray) -> Any:
    return np.frombuffer(content, np.uint8).view(kind)


class Executor:
    """Runs a step in a thread that knows nothing of the request."""

    async def run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, step, *arguments)


class ProcessorOfFeatures:
    """Takes features that the caller has computed, splits them into items, and sends them.

    Like SGLang's, it hashes them in between, and replaces features on a GPU by handles.
    """

    def __init__(self, hash_: int | None = None) -> None:
        self._hash = hash_
        self.mm_processor_executor = Executor()

    async def process_mm_data_async(self, *, request_obj: Request) -> Output:
        item = Item(Modality.IMAGE, self._hash, [one["feature"] for one in request_obj.image_data])
        items = await self.mm_processor_executor.run(self._finalize_mm_items, [item])
        return Output(items, None)

    def _finalize_mm_items(self, items: list[Item]) -> list[Item]:
        items = self._postprocess_mm_items_before_transport(items, images=None)
        for item in items:
            item.set_pad_value()
        return self._prepare_mm_items_for_transport(items)

    def _postprocess_mm_items_before_transport(
        self, items: list[Item], *, images: Any
    ) -> list[Item]:
        assert images is None
        return [
            replace(item, feature=feature, pad_value=item.hash)
            for item in items
            for feature in item.feature
        ]

    def _prepare_mm_items_for_transport(self, items: list[Item]) -> list[Item]:
        for item in items:
            if isinstance(item.feature, OnGpu):
                item.feature = "handle"
        return items


class Manager:
    def __init__(self, processor: Any = None) -> None:
        self.mm_processor = processor or Processor()


async def _tokenize(manager: Manager, request: Request) -> Output:
    return await manager.mm_processor.process_mm_data_async(request_obj=request)


def test_a_prompt_is_not_padded_by_the_hash_that_the_key_replaces() -> None:
    request = Request(image_data=[b"one"])
    output = asyncio.run(Plugin(frozenset({"keys"})).tokenize(_tokenize, Manager(), request))
    assert output.mm_items[0].hash == mmhash.key(b"one").u64
    assert output.padded_input_ids is None


def test_a_request_that_cannot_be_named_is_tokenized_as_without_the_plugin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("mmhash.plugin.sglang.name_media", fail)
    request = Request(image_data=[b"one"])
    with caplog.at_level(logging.ERROR):
        output = asyncio.run(Plugin(frozenset({"keys"})).tokenize(_tokenize, Manager(), request))
    assert output == Output([Item(Modality.IMAGE, hash=7)], [7, 7])
    assert request.image_data == [b"one"]
    assert len(caplog.records) == 1


def test_a_slow_file_holds_up_its_own_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def slow(request: Request, _tenant: bytes | None) -> None:
        if request.image_data == [b"slow"]:
            released.wait(30)

    async def both() -> None:
        plugin = Plugin(frozenset({"keys"}))
        slow_ones = [
            asyncio.create_task(plugin.tokenize(_tokenize, Manager(), Request([b"slow"])))
            for _ in range(4)
        ]
        await plugin.tokenize(_tokenize, Manager(), Request([b"one"]))
        assert not any(task.done() for task in slow_ones)
        released.set()
        await asyncio.gather(*slow_ones)

    monkeypatch.setattr("mmhash.plugin.sglang.name_media", slow)
    asyncio.run(both())


@pytest.mark.parametrize("kind", [np.ndarray, OnGpu])
@pytest.mark.parametrize("features", [{"features"}, {"features", "keys"}])
def test_computed_features_are_hashed_off_the_event_loop(
    features: set[str], kind: type[np.ndarray[Any, Any]]
) -> None:
    contents = [b"one", b"two"]
    items = _items_of(features, [_feature(content, kind) for content in contents])
    expected = [OWN, OWN]
    if "keys" in features:
        expected = [mmhash.key(_feature(content)).u64 for content in contents]
    elif kind is OnGpu:
        expected = [gpu_hash(content) for content in contents]
    assert [item.hash for item in items] == expected
    assert all(item.pad_value == item.hash for item in items)
    assert threading.get_ident() not in {item.thread for item in items}
    assert all(item.feature == "handle" for item in items if kind is OnGpu)


def test_features_on_a_gpu_have_the_name_of_their_tenant() -> None:
    token = tenant_secret.set(SECRET)
    try:
        (item,) = _items_of({"features", "keys"}, [_feature(b"one", OnGpu)])
    finally:
        tenant_secret.reset(token)
    assert item.hash == mmhash.key(_feature(b"one"), tenant=SECRET).u64


def test_features_of_an_image_with_a_file_are_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Any] = []

    def keys(items: list[Any], **_: Any) -> list[Any]:
        hashed.extend(items)
        return []

    key = mmhash.key(b"file")
    monkeypatch.setattr("mmhash.plugin.sglang.name_media", lambda *_: {"image": [key]})
    monkeypatch.setattr("mmhash.keys", keys)
    (item,) = _items_of({"features", "keys"}, [_feature(b"one", OnGpu)])
    assert (item.hash, item.feature) == (key.u64, "handle")
    assert not hashed


def test_a_list_of_tensors_has_the_engine_s_own_hash() -> None:
    items = _items_of({"features", "keys"}, [[_feature(b"one")], _feature(b"two")])
    assert [item.hash for item in items] == [OWN, mmhash.key(_feature(b"two")).u64]


def test_computed_features_keep_the_hash_that_they_come_with() -> None:
    (item,) = _items_of({"features"}, [_feature(b"one")], hash_=7)
    assert item.hash == item.pad_value == 7


def _items_of(features: set[str], given: list[Any], hash_: int | None = None) -> list[Item]:
    """Return the items of a request whose features the caller has computed."""
    request = Request([{"format": "processor_output", "feature": feature} for feature in given])
    manager = Manager(ProcessorOfFeatures(hash_))
    plugin = Plugin(frozenset(features))
    return asyncio.run(plugin.tokenize(_tokenize, manager, request)).mm_items


def test_the_plugin_imports_little() -> None:
    """Engines start it in each of their processes."""
    code = (
        "import sys; before = set(sys.modules); import mmhash.plugin.sglang, mmhash.plugin.vllm;"
        "print(*{name.partition('.')[0] for name in sys.modules.keys() - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    imported = set(done.stdout.decode().split()).difference(sys.stdlib_module_names)
    assert imported <= {"mmhash", "numpy", "blake3", "xxhash"}


def test_a_tag_of_another_secret_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_GUARD_SECRETS", SECRET[::-1].hex())
    expires = int(time.time()) + 60
    tag = sign_tag(
        mmhash.key(b"a"), engine="sglang", tenant=None, expires=expires, secrets=[SECRET]
    )
    request = Request(image_data=[b"one"], mm_hashes=[tag])
    asyncio.run(Plugin(frozenset({"guard"})).tokenize(_tokenize, Manager(), request))
    assert not request.mm_hashes


def test_items_that_are_no_files_keep_the_engine_s_hash() -> None:
    items = [Item(Modality.IMAGE), Item(Modality.IMAGE)]  # tiles of one file
    set_names(items, {"image": [mmhash.key(b"one")]})
    assert [item.hash for item in items] == [None, None]
