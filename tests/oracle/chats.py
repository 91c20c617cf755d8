"""Templates and requests whose prompts are compared with vLLM's."""

import base64
import io
from pathlib import Path
from typing import Any

from PIL import Image

from mmhash.errors import InputValueError
from mmhash.prompts import Model

TEMPLATES = {
    "own": None,
    "string": (
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}\n"
        "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    ),
    "alias": (
        "{%- set rest = messages[1:] -%}\n{%- set first = messages[0] %}\n"
        "[{{ first['role'] | upper }}]\n"
        "{% for entry in rest %}\n  {%- for piece in entry.content %}\n"
        "    {%- if piece.type == 'text' %}{{ piece.text }}"
        "{% else %}<|vision_start|><|{{ piece['type'] }}_pad|><|vision_end|>{% endif %}\n"
        "  {%- endfor %}\n{% endfor %}\n"
    ),
    "macro": (
        "{% macro show(content, mark='*') %}{% if content is string %}{{ mark ~ content }}"
        "{% else %}{% for c in content %}{% if c.type == 'image' %}"
        "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% else %}{{ c.text }}{% endif %}"
        "{% endfor %}{% endif %}{% endmacro %}"
        "{% for message in messages %}{{ loop.index0 }}/{{ loop.length }} "
        "{{ show(message.content, mark='-') }}{{ ', ' if not loop.last }}{% endfor %}"
    ),
    "tools": (
        "{%- if tools %}\n{{- 'Tools: ' + (tools | map(attribute='function') | list | tojson) }}\n"
        "{%- for tool in tools %}\n{{- '\\n' ~ tool.function.name ~ ' ' ~ (tool | tojson(indent=2)) }}\n"
        "{%- endfor %}\n{%- endif %}\n"
        "{%- set ns = namespace(count=0) %}\n"
        "{%- for message in messages %}\n"
        "{%- if message.role == 'assistant' and message.tool_calls is defined %}\n"
        "{%- for call in message.tool_calls %}{% set ns.count = ns.count + 1 %}"
        "{{- ns.count }}:{{ call.function.name }}({% for k, v in call.function.arguments | items %}"
        "{{ k }}={{ v | tojson }};{% endfor %})\n{%- endfor %}\n"
        "{%- elif message['role'] == 'tool' %}\n{{- message.tool_call_id }}->{{ message.content }}\n"
        "{%- else %}\n{{- message.role ~ '=' ~ message.content }}\n"
        "{{- (' by ' + message.name) if message.name }}\n{%- endif %}\n"
        "{{- message.reasoning_content | default('no reasoning', true) }}\n"
        "{%- endfor %}\n{{- thinking_budget }}{{ ' deep' if enable_thinking else ' quick' }}"
        "{% if documents %}{% for d in documents %}[{{ d.title }}]{{ d.text | replace('a', 'A') }}"
        "{% endfor %}{% endif %}{% if add_generation_prompt %}>{% endif %}"
    ),
    "loops": (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
        "{% if loop.index > 3 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}"
        "{% for w in m.content.split(' ') | reverse %}{{ w | capitalize }}{% endfor %}"
        "{% set n = m.content | length %}{{ n * 2 + 1 }} {{ n // 2 }} {{ n % 7 }} {{ n / 4 }}"
        "{{ '%03d' | format(n) }} {{ m.content[::-1] | upper }} {{ [3, 1, 2] | sort | join('-') }}"
        "{{ m.content.startswith('h') and not m.content.endswith('z') }}"
        "{{ range(1, 4) | list }}{{ {'b': 1, 'a': [none, true, 1.5]} | tojson }}"
        "{% endfor %}{{ eos_token }}"
    ),
    "strict": (
        "{% if messages[0].role != 'user' %}{{ raise_exception('a user comes first') }}{% endif %}"
        "{{ messages[0].content }}"
    ),
    "developer": (
        "{% for m in messages %}{{ '<' + m.role + '>' }}{{ m.content }}{% endfor %}"
        "{% if messages[0].role == 'developer' %}{{ messages[0].tools | length }}{% endif %}"
    ),
}


def cases(model: Path) -> list[dict[str, Any]]:
    """Return each request with each template: the plan's request, or none if it is refused."""
    planner = Model.load(model)
    made = []
    for name, template in TEMPLATES.items():
        for request in REQUESTS:
            if "messages" not in request and name != "own":
                continue
            case: dict[str, Any] = {"name": name, "template": template, "request": request}
            try:
                plan = planner.plan(
                    request, f"vllm@{RELEASE}", chat_template=template, model_id=MODEL_ID
                )
            except InputValueError as error:
                case["refused"] = str(error)[:200]
            else:
                case["request"] = plan.request
            made.append(case)
    return made


RELEASE = "0.32.0"
MODEL_ID = "model"


def _image(width: int, height: int, color: int = 0) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (color, 7, 9)).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _text(text: str, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **members}


def _chat(*messages: Any, **members: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    made = [
        one if isinstance(one, dict) else {"role": roles[index % 2], "content": one}
        for index, one in enumerate(messages)
    ]
    return {"model": "model", "messages": made, **members}


_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Look \u2600 up",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def _calls(*arguments: Any) -> dict[str, Any]:
    calls = [
        {"id": f"c{index}", "type": "function", "function": {"name": "weather", "arguments": one}}
        for index, one in enumerate(arguments)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


_SYSTEM = {"role": "system", "content": "Be brief."}
_BILLING = {"role": "system", "content": "x-anthropic-billing-header: 1\nThe rest"}

REQUESTS: list[dict[str, Any]] = [
    _chat("hello"),
    _chat("  hello world \n"),
    _chat(_SYSTEM, {"role": "user", "content": "hi"}),
    _chat("one", "two", "three", "four", "five"),
    _chat([_image(300, 200), _text("Describe it.")]),
    _chat([_text("a"), _image(64, 640, 1), _text("b"), _image(28, 28, 2)], "so", [_image(1, 1, 3)]),
    _chat([_text("<|vision_start|><|image_pad|><|vision_end|> is here"), _image(90, 90)]),
    _chat([_text("\u65e5\u672c\u8a9e \U0001f600"), _text(""), "bare"]),
    _chat([_text("x", cache_control={"type": "ephemeral"}), {"type": "refusal", "refusal": "no"}]),
    _chat([{"type": "text", "text": None}, _text("y")]) | {"add_generation_prompt": False},
    _chat("go on", "I was", add_generation_prompt=False, continue_final_message=True),
    _chat("go on", "I was  ", add_generation_prompt=False, continue_final_message=True),
    _chat("q", _calls('{"city": "K\u00f6ln", "n": 1.0}'), tools=[_TOOL]),
    _chat(
        "q",
        _calls("not json", "[1]", "", '{"a": {"b": [1, 2]}}'),
        {"role": "tool", "tool_call_id": "c0", "content": [_text("21"), _text("C")]},
        {"role": "tool", "tool_call_id": "c1", "content": "22"},
        tools=[_TOOL | {"function": _TOOL["function"] | {"strict": True}}],  # type: ignore[operator]
    ),
    _chat("q", tools=[{"type": "function", "function": {"name": "bare"}}]),
    _chat("q", {"role": "assistant", "content": "a", "tool_calls": []}, "more"),
    _chat("q", {"role": "assistant", "content": "a", "reasoning": "because"}, "more"),
    _chat("q", {"role": "assistant", "content": "a", "reasoning_content": "because"}, "more"),
    _chat(
        "q",
        {"role": "assistant", "content": "a", "reasoning": "one", "reasoning_content": "other"},
        {"role": "user", "content": "more", "reasoning_content": "not the assistant's"},
    ),
    _chat({"role": "user", "content": "hi", "name": "ann"}),
    _chat({"role": "developer", "content": "dev"}, {"role": "user", "content": "u"}),
    _chat(_SYSTEM, {"role": "developer", "content": "d"}, {"role": "user", "content": "u"}),
    _chat(_BILLING, {"role": "user", "content": "u"}),
    _chat("q", chat_template_kwargs={"thinking_budget": 7, "enable_thinking": False}),
    _chat("q", chat_template_kwargs={"add_generation_prompt": False, "bos_token": "B"}),
    _chat("q", reasoning_effort="low"),
    _chat("q", documents=[{"title": "t", "text": "banana"}]),
    _chat("q", add_special_tokens=True),
    _chat([_image(800, 600)], mm_processor_kwargs={"max_pixels": 50176}),
    _chat([_image(800, 600)], mm_processor_kwargs={"images_kwargs": {"max_pixels": 50176}}),
    _chat(
        [_image(800, 600)],
        mm_processor_kwargs={"size": {"shortest_edge": 3136, "longest_edge": 50176}},
    ),
    _chat([_image(400, 1)]),
    _chat([_image(120, 90)], cache_salt="salt"),
    {"model": "model", "prompt": "Hello <|image_pad|> there"},
    {"model": "model", "prompt": [1, 2, 3]},
]
