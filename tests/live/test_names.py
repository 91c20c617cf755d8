"""All blocks that an engine publishes have the names that mmhash computes."""

from collections.abc import Iterator
from typing import Any

import pytest

from mmhash.engines import sglang, vllm
from mmhash.kvindex.table import block_ids
from tests.live import prompts, results
from tests.live.engines import Engine
from tests.live.models import LORA
from tests.live.prompts import Prompt, film, image, video
from tests.support.service import Service, serving


def _sent(engine: Engine, prompt: Prompt) -> tuple[int, int, int]:
    """Send a prompt. Return how many blocks were stored and named, and its cached tokens."""
    engine.events.settle()
    if engine.guard == "always":
        ids, cached = _send_with_tags(engine, prompt)
    else:
        ids, cached = prompts.send(engine, prompt)
    expected = block_ids(prompts.names(engine, prompt, ids)[cached // engine.block_size :])
    stored = prompts.published(engine.events.wait(len(expected)))
    named = sum(one == name for one, name in zip(stored, expected, strict=False))
    assert len(stored) == len(expected)
    return len(stored), named, cached


def _send_with_tags(engine: Engine, prompt: Prompt) -> tuple[list[int], int]:
    """Send a prompt through the guard, with tags that let its hashes pass."""
    content = prompts.body(engine, prompt)
    content["mmhash_tags"] = prompts.tags(engine, prompt, None)
    answer = prompts.post(engine, content)
    assert answer.status_code == 200, answer.text[:2000]
    return answer.json()["prompt_token_ids"], prompts.cached(answer.json())


def _check(engine: Engine, column: str, *sent: Prompt) -> None:
    stored, named, cached = map(sum, zip(*(_sent(engine, one) for one in sent), strict=True))
    cell = f"{named}/{stored}" + (f", {cached} tokens reused" if cached else "")
    results.record("matrix", engine.name_of_setup, column, cell)
    assert 0 < stored == named


def _not_run(engine: Engine, column: str, reason: str) -> None:
    results.record("matrix", engine.name_of_setup, column, reason)
    pytest.skip(reason)


def test_text(engine: Engine) -> None:
    _check(engine, "text", Prompt())


def test_one_image(engine: Engine) -> None:
    _check(engine, "one image", Prompt((image(),)))


def test_several_images(engine: Engine) -> None:
    _check(engine, "several images", Prompt((image(), image())), Prompt((image(),) * 4))


def test_same_pixels_in_another_format(engine: Engine) -> None:
    prompt = Prompt((image(),))
    again = Prompt((prompt.media[0].as_format("BMP"),), prompt.text + "0" * engine.block_size)
    _check(engine, "same pixels, other format", prompt, again)
    if engine.guard != "always":
        ids, cached = prompts.send(engine, prompt)
        assert cached >= len(ids) // engine.block_size * engine.block_size - engine.block_size


def test_salt(engine: Engine) -> None:
    if engine.name == "sglang":
        text = Prompt()
        _check(engine, "salt", text, Prompt(text=text.text, salt="one"))
        return
    picture = image()
    _check(
        engine, "salt", Prompt((picture,), text="a" * 90), Prompt((picture,), "a" * 90, salt="one")
    )


def test_video(engine: Engine) -> None:
    # SGLang takes no frames, only files.
    _check(engine, "video", Prompt((video() if engine.name == "vllm" else film(),)))


def test_lora(engine: Engine) -> None:
    if not engine.loras:
        _not_run(engine, "LoRA", "its adapters need pinned memory, so a GPU")
    prompt = Prompt((image(),))
    _check(engine, "LoRA", prompt, Prompt(prompt.media, prompt.text, lora=LORA))


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving() as service:
        yield service


def test_blocks_of_the_service(engine: Engine, service: Service) -> None:
    """POST /blocks of a running service names all blocks. Its defaults are the engine's."""
    prompt = Prompt((image(), image()))
    engine.events.settle()
    if engine.guard == "always":
        ids, cached = _send_with_tags(engine, prompt)
    else:
        ids, cached = prompts.send(engine, prompt)
    assert cached == 0
    # Engines publish whole blocks only. For SGLang, /blocks also names a short last page.
    ids = ids[: len(ids) // engine.block_size * engine.block_size]
    spans = [
        {"key": one.key.hex(), "start": start, "end": end}
        for one, (start, end) in zip(prompt.media, prompts.runs(engine, ids), strict=True)
    ]
    body: dict[str, Any] = {
        "engine": engine.spelling,
        "input_ids": ids,
        "block_size": engine.block_size,
        "spans": spans,
    }
    if engine.algorithm != "sha256":
        body["block_algorithm"] = engine.algorithm
    if engine.seed is not None:
        body["seed"] = engine.seed
    with service.new_client() as client:
        answer = client.post("/blocks", json=body)
    assert answer.status_code == 200, answer.text
    names = answer.json()["event_ids"]
    stored = engine.events.wait(len(names))
    assert prompts.published(stored) == block_ids(names)
    # `blocks` has the same names in full length.
    event_id = {"vllm": _vllm_event_id, "sglang": sglang.event_id}[engine.name]
    assert [event_id(block) for block in answer.json()["blocks"]] == names


def _vllm_event_id(block: str) -> int:
    return vllm.event_id(bytes.fromhex(block))
