"""A model's directory from an untrusted source: hostile tokenizers, settings and files.

Each is a named error at once, or a plan that is bounded in time and memory.
"""

import json
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmhash import key
from mmhash.errors import MMHashError
from mmhash.prompts import Media, MediaSize, Model, UnknownModelError
from tests.support import prompt_models
from tests.support.gateway import gateway_before
from tests.support.ports import free_port

ENGINE = "vllm@0.32.0"
URL = "http://images.example/a.jpg"
CHAT = {
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": URL}},
                {"type": "text", "text": "a" * 60 + "!"},
            ],
        }
    ]
}

# Numbers for which processors loop, divide, multiply or allocate.
NUMBERS: list[Any] = [
    *(0, -1, 10**18, -(10**18), 10**400, 1e308, float("nan"), float("inf")),
    *("14", [14], {"a": 1}, None, True, [10**18, 10**18]),
]
SETTINGS = ["patch_size", "merge_size", "temporal_patch_size", "min_pixels", "max_pixels"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return prompt_models.write_qwen2_vl(tmp_path)


def _edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _plan(folder: Path) -> int:
    """Return the number of a plan's ids; each failure is a named error."""
    known = {URL: Media(MediaSize(width=1280, height=720), key(b"a"))}
    return len(Model.load(folder).plan(CHAT, ENGINE, media=known).token_ids)


def _plan_or_refuse(folder: Path) -> None:
    try:
        assert _plan(folder) < 4 << 20
    except MMHashError:
        return


@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", SETTINGS)
def test_sizes_that_no_processor_has(folder: Path, name: str, value: Any) -> None:
    _edit(folder / "preprocessor_config.json", lambda document: document.update({name: value}))
    _plan_or_refuse(folder)


@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("side", ["shortest_edge", "longest_edge"])
def test_edges_that_no_processor_has(folder: Path, side: str, value: Any) -> None:
    def change(document: dict[str, Any]) -> None:
        document.pop("min_pixels", None)
        document.pop("max_pixels", None)
        document["size"] = {"shortest_edge": 3136, "longest_edge": 1003520, side: value}

    _edit(folder / "preprocessor_config.json", change)
    _plan_or_refuse(folder)


@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "tokenizer.json"])
@pytest.mark.parametrize("text", ['{"a":' * 200_000, "[" * 200_000, '{"a":' + "9" * 5000 + "}"])
def test_deep_files_and_long_numbers(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(MMHashError):
        _plan(folder)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*$"])
@pytest.mark.parametrize("place", ["pre_tokenizer", "normalizer"])
def test_patterns_that_backtrack(folder: Path, place: str, pattern: str) -> None:
    step: dict[str, Any] = {"pattern": {"Regex": pattern}}
    if place == "normalizer":
        step |= {"type": "Replace", "content": "b"}
    else:
        step |= {"type": "Split", "behavior": "Isolated", "invert": False}
    _edit(folder / "tokenizer.json", lambda document: document.update({place: step}))
    _plan_or_refuse(folder)


@pytest.mark.slow
def test_a_pattern_that_is_slow_at_each_place_holds_no_other_request(folder: Path) -> None:
    """Each match has a limit, and their number has none: one more `a` in it takes thrice as long."""
    step = {
        "type": "Split",
        "behavior": "Isolated",
        "invert": False,
        "pattern": {"Regex": "(?:a|aa|aaa){10}b|a"},
    }
    _edit(folder / "tokenizer.json", lambda document: document.update(pre_tokenizer=step))
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "a" * 3000}]}
    body = json.dumps(chat).encode()
    head = b"POST /route HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
    worker = f"http://127.0.0.1:{free_port()},engine={ENGINE}"
    with (
        gateway_before([worker], settings={"models": {"tiny": str(folder)}}) as gateway,
        gateway.new_client() as client,
        gateway.connect() as slow,
    ):
        slow.sendall(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        time.sleep(0.2)
        for _ in range(3):
            assert client.get("/live").status_code == 200
        assert not select.select([slow], [], [], 0)[0]
        assert slow.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("kind", ["Replace", "Prepend"])
def test_normalizers_that_make_gigabytes(folder: Path, kind: str) -> None:
    step: dict[str, Any] = {"type": kind}
    if kind == "Replace":
        step |= {"pattern": {"Regex": "."}, "content": "a" * 10}
    else:
        step |= {"prepend": "a" * 1000}
    steps = {"type": "Sequence", "normalizers": [step] * 12}
    _edit(folder / "tokenizer.json", lambda document: document.update(normalizer=steps))
    with pytest.raises(UnknownModelError, match="too long"):
        _plan(folder)


def test_a_damaged_vocabulary(folder: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        vocabulary = document["model"]["vocab"]
        document["model"]["vocab"] = {
            text: 2**32 - 1 if isinstance(number, int) else number
            for text, number in (
                vocabulary.items() if isinstance(vocabulary, dict) else enumerate(vocabulary)
            )
        }

    _edit(folder / "tokenizer.json", change)
    _plan_or_refuse(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja"])
@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "dangling", "loop", "huge"])
def test_what_is_no_file_of_a_model(folder: Path, name: str, kind: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case "dangling":
            path.symlink_to(folder / "nothing")
        case "loop":
            path.symlink_to(path)
        case "huge":
            path.touch()
            os.truncate(path, 1 << 40)
    if name == "chat_template.jinja" and kind in {"dangling", "loop"}:
        _plan_or_refuse(folder)  # as if it were not there
        return
    with pytest.raises(MMHashError):
        _plan(folder)
