"""Prompts are those of a real vLLM: `python -m tests.oracle.templates` wrote its answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts import Model
from tests.oracle.chats import MODEL_ID
from tests.support import prompt_models

_VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "vllm_prompts.json").read_text())
_CASES = _VECTORS["cases"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model.load(prompt_models.write_qwen2_vl(tmp_path_factory.mktemp("qwen2_vl")))


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["name"])
def test_prompt_is_that_of_vllm(model: Model, case: dict[str, Any]) -> None:
    options = {"chat_template": case["template"], "model_id": MODEL_ID}
    engine = f"vllm@{_VECTORS['release']}"
    if "error" in case:
        with pytest.raises(InputValueError):
            model.plan(case["request"], engine, **options)
        return
    if "refused" in case:  # a plan may refuse more, but never differ
        return
    plan = model.plan(case["request"], engine, **options)
    assert plan.token_ids == case["token_ids"]
    assert [[item.start, item.end - item.start] for item in plan.items] == case["spans"]
    assert [span.key.hex() for span in plan.spans] == case["hashes"]
    assert plan.request == case["request"]


def test_few_cases_are_refused() -> None:
    refused = [case for case in _CASES if "refused" in case and "error" not in case]
    assert [case["refused"] for case in refused] == []
