"""Models whose directory has no processor."""

from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts import Model, UnknownModelError
from tests.support.family_files import write_files
from tests.support.images import data_url

ENGINES = pytest.mark.parametrize("engine", ["vllm@0.32.0", "sglang@0.5.23"])
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}"
    "{% endfor %}"
)


def write(folder: Path, **config: Any) -> Path:
    config = {"model_type": "llama"} | config
    write_files(folder, ("<|user|>",), config, tokenizer_config={"chat_template": TEMPLATE})
    return folder


def chat(*parts: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": "hi"}, *parts]
    return {"model": "m", "messages": [{"role": "user", "content": content}]}


@ENGINES
def test_texts_are_planned_without_a_mark(tmp_path: Path, engine: str) -> None:
    model = Model.load(write(tmp_path))
    plan = model.plan(chat(), engine, block_size=1)
    assert plan.token_ids == model.files.encoder.encode("<|user|>hi")
    assert len(plan.blocks) == len(plan.token_ids)


@ENGINES
def test_items_are_refused(tmp_path: Path, engine: str) -> None:
    model = Model.load(write(tmp_path))
    image = {"type": "image_url", "image_url": {"url": data_url(b"GIF89a")}}
    with pytest.raises(InputValueError):
        model.plan(chat(image), engine)


def test_a_model_whose_engines_use_no_template_needs_the_mark(tmp_path: Path) -> None:
    folder = write(tmp_path, model_type="gpt_oss")
    with pytest.raises(UnknownModelError, match="unchecked"):
        Model.load(folder)
    assert Model.load(folder, unchecked=True).plan(chat(), "vllm@0.32.0").token_ids


@pytest.mark.parametrize("tower", ["vision_config", "audio_config"])
def test_a_model_that_lost_its_processor_is_refused(tmp_path: Path, tower: str) -> None:
    with pytest.raises(UnknownModelError):
        Model.load(write(tmp_path, **{tower: {"hidden_size": 8}}))
