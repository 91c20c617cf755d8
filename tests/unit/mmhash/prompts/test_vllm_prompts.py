"""Prompts are those of a real vLLM: `python -m tests.oracle.templates` wrote its answers."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmhash.errors import InputValueError
from mmhash.prompts import Model
from tests.oracle.chats import MODEL_ID
from tests.support import prompt_models
from tests.support.images import encode, image_part

_VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "vllm_prompts.json").read_text())
_CASES = _VECTORS["cases"]
_ENGINE = f"vllm@{_VECTORS['release']}"
_USER = {"role": "user", "content": "hi"}
_COMPLETIONS = "/v1/completions"


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["name"])
def test_prompt_is_that_of_vllm(model: Model, case: dict[str, Any]) -> None:
    options = {"chat_template": case["template"], "model_id": MODEL_ID}
    if "error" in case:
        with pytest.raises(InputValueError):
            model.plan(case["request"], _ENGINE, **options)
        return
    if "refused" in case:  # a plan may refuse more, but never differ
        return
    plan = model.plan(case["request"], _ENGINE, **options)
    assert plan.token_ids == case["token_ids"]
    assert [[item.start, item.end - item.start] for item in plan.items] == case["spans"]
    assert [span.key.hex() for span in plan.spans] == case["hashes"]
    assert plan.request == case["request"]


def test_few_cases_are_refused() -> None:
    refused = [case for case in _CASES if "refused" in case and "error" not in case]
    assert [case["refused"] for case in refused] == []


def _check_text(model: Model, request: dict[str, Any], template: str, text: str) -> None:
    """Check the text of a prompt with what a real vLLM 0.32 made of the same request."""
    plan = model.plan({"messages": [_USER]} | request, _ENGINE, chat_template=template)
    assert plan.token_ids == model.files.encoder.encode(text, add_special_tokens=False)


def test_tool_calls_have_the_engine_s_order_of_members(model: Model) -> None:
    """A template may show a call or its function as JSON, as Mistral's do."""
    function = {"q": 1, "name": "f", "arguments": '{"b": 1, "a": 2}', "a": 2}
    call = {"index": 0, "type": "function", "id": "c1", "z": 1, "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    _check_text(
        model,
        {"messages": [_USER, message]},
        "{% for m in messages %}{% for call in m.tool_calls or [] %}{{ call | tojson }}"
        "{% endfor %}{% endfor %}",
        '{"id": "c1", "function": {"arguments": {"b": 1, "a": 2}, "name": "f", "q": 1, "a": 2},'
        ' "type": "function", "index": 0, "z": 1}',
    )


def test_tool_calls_that_are_no_list_have_no_plan(model: Model) -> None:
    message = {"role": "assistant", "content": "a", "tool_calls": 1}
    with pytest.raises(InputValueError, match="tool_calls"):
        model.plan({"messages": [_USER, message]}, _ENGINE)


@pytest.mark.parametrize(("release", "is_removed"), [("0.31.0", False), ("0.32.0", True)])
def test_claude_code_s_line_is_removed_from_0_32_on(
    model: Model, release: str, *, is_removed: bool
) -> None:
    line = "x-anthropic-billing-header: 1"
    messages = [{"role": "system", "content": f"{line}\nhi"}, {"role": "user", "content": line}]
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    plan = model.plan({"messages": messages}, f"vllm@{release}", chat_template=template)
    system = "hi" if is_removed else f"{line}\nhi"
    assert plan.token_ids == model.files.encoder.encode(f"{system}{line}", add_special_tokens=False)


def test_a_tool_call_id_that_is_null_has_no_plan(model: Model) -> None:
    message = {"role": "tool", "content": "a", "tool_call_id": None}
    with pytest.raises(InputValueError, match="tool_call_id"):
        model.plan({"messages": [_USER, message]}, _ENGINE)


def test_tools_of_a_developer_have_the_engine_s_order_of_members(model: Model) -> None:
    function = {"strict": True, "z": 1, "parameters": {"q": 1, "a": 2}, "name": "f"}
    tool = {"x": 1, "type": "function", "function": function}
    message = {"role": "developer", "content": "d", "tools": [tool]}
    _check_text(
        model,
        {"messages": [message]},
        "{% for m in messages %}{% if m.role == 'developer' %}{{ m.tools | tojson }}{% endif %}"
        "{% endfor %}",
        '[{"function": {"name": "f", "parameters": {"q": 1, "a": 2}, "strict": true, "z": 1},'
        ' "type": "function", "x": 1}]',
    )


def test_a_tool_s_defer_loading_is_its_function_s_too(model: Model) -> None:
    tool = {"type": "function", "function": {"name": "f"}, "defer_loading": True}
    _check_text(
        model,
        {"tools": [tool]},
        "{{ tools | tojson }}",
        '[{"type": "function", "function": {"name": "f", "description": null, "parameters": null,'
        ' "defer_loading": true}, "defer_loading": true}]',
    )


@pytest.mark.parametrize("value", [None, "auto"])
def test_variables_that_are_null_or_auto_are_not_given_to_the_template(
    model: Model, value: str | None
) -> None:
    _check_text(
        model,
        {"chat_template_kwargs": {"enable_thinking": value, "bos_token": value, "x": []}},
        "{{ enable_thinking is defined }} {{ bos_token is defined }} {{ x }}",
        "False False []",
    )


def test_arguments_of_the_renderer_are_not_given_to_the_template(model: Model) -> None:
    _check_text(
        model,
        {"chat_template_kwargs": {"max_length": 3, "truncation": True, "x": 1}},
        "{{ max_length is defined }} {{ truncation is defined }} {{ x }}",
        "False False 1",
    )


@pytest.mark.parametrize(
    "members",
    [
        {"add_generation_prompt": 0},
        {"add_generation_prompt": "false"},
        {"add_generation_prompt": None},
        {"continue_final_message": "off"},
        {"add_special_tokens": "true"},
        {"add_special_tokens": 1},
        {"tools": [{"function": {"name": "f", "strict": "true"}}]},
        {"tools": [{"function": {"name": "f", "defer_loading": 1}}]},
        {"tools": [{"function": {"name": "f"}, "defer_loading": 1}]},
    ],
)
def test_switches_that_the_engine_reads_otherwise_have_no_plan(
    model: Model, members: dict[str, Any]
) -> None:
    """vLLM takes "false" and 0 for false."""
    with pytest.raises(InputValueError, match="true or false"):
        model.plan({"messages": [_USER]} | members, _ENGINE)


@pytest.mark.parametrize("value", [0, "false"])
def test_a_completion_s_switch_is_true_or_false(model: Model, value: Any) -> None:
    with pytest.raises(InputValueError, match="true or false"):
        model.plan({"prompt": "a", "add_special_tokens": value}, _ENGINE)


@pytest.mark.parametrize(
    "members",
    [
        {"truncate_prompt_tokens": 2},
        {"suffix": ""},
        {"prompt_embeds": "AAAA"},
    ],
)
def test_completions_of_another_prompt_have_no_plan(model: Model, members: dict[str, Any]) -> None:
    with pytest.raises(InputValueError, match="no plan for a request with"):
        model.plan({"prompt": "a b c"} | members, _ENGINE)


@pytest.mark.slow  # the model's processor is loaded
def test_an_image_without_a_placeholder_in_texts_has_no_plan(tmp_path: Path) -> None:
    """vLLM writes none for Pixtral: a placeholder in another text would stand for the image."""
    pixtral = Model.load(prompt_models.write("pixtral", tmp_path))
    image = image_part(encode(Image.new("RGB", (56, 56))))
    messages = [{"role": "system", "content": "[IMG]"}, {"role": "user", "content": [image]}]
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(InputValueError, match="no placeholder for image"):
        pixtral.plan({"messages": messages}, _ENGINE, chat_template=template)


@pytest.mark.parametrize("engine", [_ENGINE, "sglang@0.5.23"])
@pytest.mark.parametrize("prompts", [["a b" * 20, "c"], [[97, 32, 98] * 9, [98] * 30, []], ["a"]])
def test_a_batch_has_the_plans_of_its_prompts(
    model: Model, engine: str, prompts: list[Any]
) -> None:
    plan = model.plan({"prompt": prompts, "cache_salt": "s"}, engine, block_size=16)
    single = [
        model.plan({"prompt": prompt, "cache_salt": "s"}, engine, path=_COMPLETIONS, block_size=16)
        for prompt in prompts
    ]
    assert plan.lengths == [len(one.token_ids) for one in single]
    assert plan.token_ids == [token for one in single for token in one.token_ids]
    assert plan.blocks == [block for one in single for block in one.blocks]
    assert plan.event_ids == [event for one in single for event in one.event_ids]


def test_a_batch_of_batches_is_refused(model: Model) -> None:
    with pytest.raises(InputValueError, match="token ids"):
        model.plan({"prompt": [["a"]]}, _ENGINE)


@pytest.mark.parametrize("kind", ["input_text", "output_text", "thinking"])
def test_a_null_that_the_engine_writes_as_none_has_no_plan(model: Model, kind: str) -> None:
    messages = [{"role": "assistant", "content": [{"type": kind, "text": None}]}]
    with pytest.raises(InputValueError, match="null"):
        model.plan({"messages": messages}, _ENGINE)


def test_a_chat_of_another_s_token_ids_has_no_plan(model: Model) -> None:
    """vLLM takes these instead of the messages; 0.32 only if those are texts."""
    ids = {"kv_transfer_params": {"prompt_token_ids": [1, 2, 3]}}
    with pytest.raises(InputValueError, match="no plan for a request with"):
        model.plan({"messages": [_USER]} | ids, _ENGINE)
    others = {"kv_transfer_params": {"do_remote_decode": True}}
    _check_text(model, others, "{{ messages[0].role }}", "user")
