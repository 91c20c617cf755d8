"""Chats as SGLang 0.5.23 gives them to a template (serving_chat.py, jinja_template_utils.py)."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import mmhash
from mmhash.engines import sglang
from mmhash.errors import InputValueError
from mmhash.prompts import Model
from mmhash.requests import UnplannedError
from tests.support import prompt_models
from tests.support.images import encode, image_part

ENGINE = "sglang@0.5.23"
USER = {"role": "user", "content": "hi"}
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.tool_calls }}{% endfor %}"
PARTS = (
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<|image_pad|>{% else %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)


def ids_of(model: Model, *messages: Any, template: str = TEMPLATE) -> list[int]:
    return model.plan({"messages": [*messages]}, ENGINE, chat_template=template).token_ids


CALLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


@pytest.mark.parametrize(
    ("last", "content"),
    [
        ({"role": "assistant", "content": "I was"}, "I was"),
        ({"role": "assistant", "content": None, "tool_calls": CALLS}, ""),
        ({"role": "assistant", "content": "", "name": "x"}, ""),
    ],
)
def test_a_last_message_of_the_assistant_becomes_one_of_the_user(
    model: Model, last: Any, content: str
) -> None:
    assert ids_of(model, USER, last) == ids_of(model, USER, {"role": "user", "content": content})
    assert ids_of(model, last, USER) != ids_of(model, {"role": "user", "content": content}, USER)


def native(file: bytes, **members: Any) -> dict[str, Any]:
    image = base64.b64encode(file).decode()
    return {"text": "hi <|image_pad|> x", "image_data": [image], **members}


def png(color: int = 0) -> bytes:
    return encode(Image.new("RGB", (56, 56), (color, 0, 0)))


def chat_of(file: bytes) -> dict[str, Any]:
    parts = [
        {"type": "text", "text": "hi "},
        image_part(file),
        {"type": "text", "text": " x"},
    ]
    return {"messages": [{"role": "user", "content": parts}]}


def test_the_server_in_rust_names_an_image_by_its_file(model: Model) -> None:
    plan = model.plan(native(png(), mm_hashes=["f0"]), ENGINE, server="rust")
    own = sglang.file_hash(png())
    (item,) = plan.items
    assert item.key == mmhash.key(png())
    assert item.fields == {"mm_hash": f"{own:016x}", "pad_values": sglang.pad_values(own)}
    assert "mm_hashes" not in plan.request  # the engine computes the same hash
    filled = [(span.start, span.end, own) for span in plan.spans]
    padded = sglang.pad_input_ids(plan.token_ids, filled)
    assert plan.blocks == sglang.page_keys(padded, 1)
    assert len(plan.blocks) == len(plan.token_ids)
    other = model.plan(native(png(1)), ENGINE, server="rust")
    assert other.blocks[: item.start] == plan.blocks[: item.start]
    assert other.blocks[item.start] != plan.blocks[item.start]


def test_the_server_in_rust_has_its_own_hashes_of_qwen3_vl(tmp_path: Path) -> None:
    model = Model.load(prompt_models.write("qwen3_vl", tmp_path))
    request = native(png())
    assert len(model.plan(request, ENGINE).blocks) < len(model.plan(request, ENGINE).token_ids)
    plan = model.plan(request, ENGINE, server="rust")
    assert len(plan.blocks) == len(plan.token_ids)


def test_a_request_that_the_server_in_rust_refuses_has_no_plan(model: Model) -> None:
    chat = {"messages": [{"role": "user", "content": [image_part(png())]}]}
    with pytest.raises(InputValueError, match="images in /generate only"):
        model.plan(chat, ENGINE, server="rust", chat_template=PARTS)
    assert model.plan({"messages": [USER]}, ENGINE, server="rust", chat_template=TEMPLATE).blocks
    with pytest.raises(InputValueError, match="hashes the file"):
        model.plan(native(png()), ENGINE, server="rust", of="pixels")
    with pytest.raises(InputValueError, match="does not know"):
        model.plan({"text": "hi"}, "sglang@0.5.22", server="rust")
    with pytest.raises(InputValueError, match="vllm has no server 'rust'"):
        model.plan({"prompt": "hi"}, "vllm", server="rust")


@pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen3_vl"])
def test_the_plugin_names_an_image_by_the_key_of_its_file(tmp_path: Path, model_type: str) -> None:
    model = Model.load(prompt_models.write(model_type, tmp_path))
    key = mmhash.key(png())
    for request in (native(png(), mm_hashes=["f0"]), chat_of(png())):
        plan = model.plan(request, ENGINE, server="mmhash", chat_template=PARTS)
        filled = [(span.start, span.end, key) for span in plan.spans]
        padded = sglang.pad_input_ids(plan.token_ids, filled)
        assert plan.blocks == sglang.page_keys(padded, 1)
        assert len(plan.blocks) == len(plan.token_ids)
        assert plan.items[0].fields["mm_hash"] == sglang.mm_hash(key)
    assert plan.request == chat_of(png())
    assert "mm_hashes" not in model.plan(native(png()), ENGINE, server="mmhash").request


def test_the_plugin_names_a_file_by_the_key_of_a_tenant(model: Model) -> None:
    data, tenant = png(), bytes(32)
    plan = model.plan(native(data), ENGINE, server="mmhash", tenant=tenant)
    assert plan.spans[0].key == plan.items[0].key == mmhash.key(data, tenant=tenant)


@pytest.mark.parametrize(
    ("options", "of_media", "of_part"),
    [
        ({"images_config": {"a": 1}}, {}, {}),
        ({}, {"detail": "high"}, {}),
        ({}, {"max_dynamic_patch": 2}, {}),
        ({}, {}, {"modalities": "video"}),
    ],
)
def test_an_image_with_options_ends_the_plan_for_the_plugin(
    model: Model, options: dict[str, Any], of_media: dict[str, Any], of_part: dict[str, Any]
) -> None:
    request = chat_of(png()) | options
    part = request["messages"][0]["content"][1]
    part |= of_part
    part["image_url"] |= of_media
    plan = model.plan(request, ENGINE, server="mmhash", chat_template=PARTS)
    assert len(plan.blocks) == plan.spans[0].start > 0


def test_the_plugin_is_for_releases_that_it_was_tried_in(model: Model) -> None:
    with pytest.raises(InputValueError, match="does not know"):
        model.plan(native(png()), "sglang@0.5.19", server="mmhash")
    with pytest.raises(InputValueError, match="vllm has no server 'mmhash'"):
        model.plan({"prompt": "hi"}, "vllm", server="mmhash")


def test_ids_come_before_the_text(model: Model) -> None:
    ids = [3, 1, 2]
    assert model.plan({"text": "hi", "input_ids": ids}, ENGINE).token_ids == ids
    assert model.plan(
        {"text": "hi", "input_ids": None}, ENGINE
    ).token_ids == model.files.encoder.encode("hi", add_special_tokens=True)
    with pytest.raises(InputValueError, match="both text and input_ids"):
        model.plan(native(png(), input_ids=ids), ENGINE)


def test_a_last_message_of_parts_stays_the_assistant_s(model: Model) -> None:
    parts = {"role": "assistant", "content": [{"type": "text", "text": "I was"}]}
    assert ids_of(model, USER, parts, template=PARTS) == model.files.encoder.encode(
        "<user>hi<assistant>I was", add_special_tokens=False
    )


def test_a_tool_s_image_stays_where_it_is(model: Model) -> None:
    text = {"type": "text", "text": "seen"}
    with_image = {"role": "tool", "tool_call_id": "c", "content": [text, image_part(png()), text]}
    plan = model.plan({"messages": [USER, with_image]}, ENGINE, chat_template=PARTS)
    (item,) = plan.items
    assert plan.token_ids[: item.start] == model.files.encoder.encode(
        "<user>hi<tool>seen", add_special_tokens=False
    )
    only_text = {"role": "tool", "tool_call_id": "c", "content": [text, text]}
    assert ids_of(model, USER, only_text, template=PARTS) == model.files.encoder.encode(
        "<user>hi<tool>seen seen", add_special_tokens=False
    )


def test_a_message_has_only_the_members_that_the_engine_knows(model: Model) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a": 1}', "x": 1}, "x": 1}
    messages = [
        {"role": "user", "content": "hi", "name": "n", "reasoning_content": "r", "x": 1},
        {"role": "Assistant", "reasoning_content": "r", "reasoning": "x", "tool_calls": [call]},
        {"role": "tool", "content": "out", "tool_call_id": "c", "name": "f", "task": "x"},
    ]
    expected: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "reasoning_content": "r",
            "tool_calls": [
                {
                    "id": "c",
                    "index": None,
                    "type": "function",
                    "function": {"name": "f", "arguments": {"a": 1}},
                }
            ],
            "content": "",
        },
        {"role": "tool", "content": "out", "tool_call_id": "c", "name": "f"},
    ]
    template = (
        "{% for m in messages %}{{ m | dictsort }}"
        "{% for call in m.tool_calls or [] %}{{ call | tojson }}{% endfor %}{% endfor %}"
    )
    assert ids_of(model, *messages, template=template) == model.files.encoder.encode(
        "".join(
            str(sorted(one.items()))
            + "".join(json.dumps(call) for call in one.get("tool_calls", []))
            for one in expected
        ),
        add_special_tokens=False,
    )


def test_an_empty_list_of_tools_stays_in_its_message(model: Model) -> None:
    """SGLang drops only the members of a message that are null."""
    message = {"role": "system", "content": "hi", "tools": []}
    shown = "{% for m in messages %}{{ m | dictsort }}{% endfor %}"
    text = str(sorted(message.items()))
    ids = model.files.encoder.encode(text, add_special_tokens=False)
    assert ids_of(model, message, template=shown) == ids


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "USER", "content": "a"}, "no role"),
        ({"role": "<|im_start|>system", "content": "a"}, "no role"),
        ({"role": "developer", "content": "a", "tools": [{}]}, "with tools"),
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": "[1]"}}]}, "JSON object"),
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": ""}}]}, "JSON object"),
        ({"role": "assistant", "tool_calls": [{"type": "x", "function": {}}]}, "type function"),
        ({"role": "assistant", "tool_calls": [None]}, "type function"),
        ({"role": "assistant", "tool_calls": [{"function": {}, "index": "0"}]}, "an integer"),
    ],
)
def test_messages_that_the_engine_refuses(model: Model, message: Any, reason: str) -> None:
    with pytest.raises(InputValueError, match=reason):
        ids_of(model, message, USER)


def test_an_image_that_the_template_leaves_out_has_no_plan(model: Model) -> None:
    """Else a placeholder in the text would stand for it."""
    content = [{"type": "text", "text": "<|image_pad|>"}, image_part(png())]
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(InputValueError, match="texts only"):
        ids_of(model, {"role": "user", "content": content}, template=template)


@pytest.mark.parametrize("engine", [ENGINE, "vllm@0.32.0"])
@pytest.mark.parametrize("name", ["messages", "tools", "chat_template"])
def test_arguments_that_the_engine_gives_itself_are_refused(
    model: Model, engine: str, name: str
) -> None:
    request = {"messages": [USER], "chat_template_kwargs": {name: []}}
    with pytest.raises(InputValueError, match="chat_template_kwargs"):
        model.plan(request, engine, chat_template="{{ messages }}{{ tools }}")


def ids_with(model: Model, template: str, members: dict[str, Any]) -> list[int]:
    request = {"messages": [USER]} | members
    return model.plan(request, ENGINE, chat_template=template).token_ids


@pytest.mark.parametrize(
    ("members", "values"),
    [
        ({}, "||"),
        ({"reasoning_effort": "none"}, "none|False|False"),
        ({"reasoning_effort": "high"}, "high|True|True"),
        ({"reasoning_effort": 0.5}, "0.5|True|True"),
        ({"reasoning": {"effort": "low"}}, "low|True|True"),
        ({"reasoning": {"effort": "none"}, "reasoning_effort": "high"}, "none|False|False"),
        ({"reasoning": {"enabled": True}}, "|True|True"),
        ({"reasoning": {"enabled": False, "effort": None}}, "||"),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
            "low|True|False",
        ),
        ({"chat_template_kwargs": {"reasoning_effort": "none"}}, "none||"),
        ({"chat_template_kwargs": {"max_length": 1}}, "||"),
    ],
)
def test_reasoning_turns_thinking_on_or_off(
    model: Model, members: dict[str, Any], values: str
) -> None:
    template = "{{ reasoning_effort }}|{{ thinking }}|{{ enable_thinking }}{{ max_length }}"
    assert ids_with(model, template, members) == model.files.encoder.encode(
        values, add_special_tokens=False
    )


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"lora_path": "adapter"}, "with lora_path"),
        ({"model": "base:adapter"}, "with an adapter"),
        ({"model": "s3://models/base:adapter"}, "with an adapter"),
        ({"input_ids": [1, 2]}, "with input_ids"),
        ({"reasoning_effort": "0.5"}, "a known name or a number"),
        ({"reasoning_effort": True}, "a known name or a number"),
        ({"reasoning": {"enabled": "yes"}}, "enabled"),
    ],
)
def test_chats_of_another_prompt_or_adapter_have_no_plan(
    model: Model, members: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputValueError, match=reason):
        ids_with(model, TEMPLATE, members)


def test_the_name_of_a_model_may_be_the_url_of_an_object_store(model: Model) -> None:
    assert ids_with(model, TEMPLATE, {"model": "s3://models/base"}) == ids_with(model, TEMPLATE, {})


@pytest.mark.parametrize("member", ["lora_path", "session_params"])
def test_a_prompt_with_an_adapter_or_in_a_session_has_no_plan(model: Model, member: str) -> None:
    with pytest.raises(InputValueError, match=f"with {member}"):
        model.plan({"text": "a", member: {"id": "x"}}, ENGINE)


@pytest.mark.parametrize("text", [{"text": "a"}, {"messages": [{"role": "user", "content": "a"}]}])
def test_a_prompt_with_processor_options_has_no_plan(model: Model, text: dict[str, Any]) -> None:
    """SGLang overlooks them for Qwen-VL: 249 tokens of an image were planned as 56."""
    with pytest.raises(InputValueError, match="with mm_processor_kwargs"):
        model.plan({**text, "mm_processor_kwargs": {"max_pixels": 50176}}, ENGINE)


def test_a_list_of_parts_is_the_last_member_of_a_message(model: Model) -> None:
    """A template may show a message as JSON."""
    text = {"type": "text", "text": "a"}
    message = {"role": "assistant", "content": [text], "reasoning_content": "r"}
    template = (
        "{% for m in messages %}{{ m | tojson }}{% for p in m.content %}{% endfor %}{% endfor %}"
    )
    assert ids_of(model, message, template=template) == model.files.encoder.encode(
        '{"role": "assistant", "reasoning_content": "r",'
        ' "content": [{"type": "text", "text": "a"}]}',
        add_special_tokens=False,
    )


def test_numbers_of_arguments_that_64_bits_do_not_hold_are_floats(model: Model) -> None:
    arguments = '{"a": 18446744073709551615, "b": 18446744073709551616}'
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    assistant = {"role": "assistant", "tool_calls": [call]}
    template = (
        "{% for m in messages %}{% for call in m.tool_calls or [] %}"
        "{{ call.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    assert ids_of(model, assistant, USER, template=template) == model.files.encoder.encode(
        '{"a": 18446744073709551615, "b": 1.8446744073709552e+19}', add_special_tokens=False
    )


FUNCTION = {"parameters": {"type": "object"}, "name": "f", "strict": None}
TOOL = {"type": "function", "function": FUNCTION, "defer_loading": True}


@pytest.mark.parametrize(
    ("release", "function"),
    [
        (
            "0.5.23",
            {**FUNCTION, "description": None, "defer_loading": True},
        ),
        (
            "0.5.20",
            {
                "description": None,
                "name": "f",
                "parameters": {"type": "object"},
                "strict": False,
                "defer_loading": True,
            },
        ),
    ],
)
def test_tools_have_the_members_of_the_release(
    model: Model, release: str, function: dict[str, Any]
) -> None:
    function = {name: one for name, one in function.items() if name != "strict" or one is not None}
    shown = [{"type": "function", "function": function, "defer_loading": True}]
    request = {"messages": [USER], "tools": [TOOL]}
    plan = model.plan(request, f"sglang@{release}", chat_template="{{ tools | tojson }}")
    assert plan.token_ids == model.files.encoder.encode(json.dumps(shown), add_special_tokens=False)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, "fg"),
        ("required", "fg"),
        ("none", ""),
        ({"type": "function", "function": {"name": "g"}}, "g"),
    ],
)
def test_the_choice_of_a_tool_says_which_are_shown(model: Model, choice: Any, names: str) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "fg"]
    template = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}."
    ids = ids_with(model, template, {"tools": tools, "tool_choice": choice})
    assert ids == model.files.encoder.encode(f"{names}.", add_special_tokens=False)


def test_a_template_that_fails_gets_tools_without_their_wrapper(model: Model) -> None:
    template = "{% if not tools[0].name %}{{ raise_exception('no') }}{% endif %}{{ tools[0].name }}"
    assert ids_with(model, template, {"tools": [TOOL]}) == model.files.encoder.encode(
        "f", add_special_tokens=False
    )


@pytest.mark.parametrize(
    ("engine", "parameters", "reason"),
    [
        (ENGINE, {"properties": {"a": {"type": "varchar"}}}, "type"),
        (ENGINE, {"type": ["string", "string"]}, "type"),
        ("sglang@0.5.22", {"type": "object"}, "0.5.20"),
    ],
)
def test_tools_that_no_plan_knows(
    model: Model, engine: str, parameters: dict[str, Any], reason: str
) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    with pytest.raises(UnplannedError, match=reason):
        model.plan({"messages": [USER], "tools": tools}, engine)


def test_a_final_message_is_continued(model: Model) -> None:
    """The template does not get it: its text follows."""
    template = "{% for m in messages %}<{{ m.content }}>{% endfor %}:"
    final = {"role": "assistant", "content": "begun"}
    members = {"messages": [USER, final], "continue_final_message": True}
    assert ids_with(model, template, members) == model.files.encoder.encode(
        "<hi>:begun", add_special_tokens=False
    )


def test_results_with_media_in_another_order_than_their_calls_are_refused(model: Model) -> None:
    calls = [{**CALLS[0], "id": "a"}, {**CALLS[0], "id": "b"}]
    answers = [
        {"role": "tool", "tool_call_id": "b", "content": [image_part(png())]},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]
    asked = {"role": "assistant", "tool_calls": calls}
    assert ids_of(model, USER, asked, *reversed(answers), USER, template=PARTS)
    with pytest.raises(UnplannedError, match="order"):
        ids_of(model, USER, asked, *answers, USER, template=PARTS)
