"""A text for which a regular expression of the model's tokenizer takes long, to block the gateway.

Each match has a step limit, and prompts for such tokenizers are planned in a thread.
"""

import json
import select
import time
from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts import Model
from tests.support import prompt_models
from tests.support.gateway import gateway_before
from tests.support.ports import free_port

ENGINE = "vllm@0.32.0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return prompt_models.write_qwen2_vl(tmp_path)


def _set_pre_tokenizer(folder: Path, step: dict[str, Any]) -> None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pre_tokenizer": step}))


def test_an_expression_that_backtracks_is_a_named_error(folder: Path) -> None:
    """The tokenizers package panics, and its panics are no Exceptions."""
    pattern = {"pattern": {"Regex": "(a+)+$"}}
    _set_pre_tokenizer(
        folder, {"type": "Split", "behavior": "Isolated", "invert": False, **pattern}
    )
    with pytest.raises(InputValueError, match="too many steps"):
        Model.load(folder).plan({"prompt": "a" * 60 + "!"}, ENGINE)


@pytest.mark.slow
def test_a_pattern_that_is_slow_at_each_place_holds_no_other_request(folder: Path) -> None:
    """Each match has a limit, and their number has none: one more `a` in it takes thrice as long."""
    step = {
        "type": "Split",
        "behavior": "Isolated",
        "invert": False,
        "pattern": {"Regex": "(?:a|aa|aaa){10}b|a"},
    }
    _set_pre_tokenizer(folder, step)
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
