"""Makes random requests of each form: texts, tools, images, odd but valid members."""

import base64
import io
import json
import random
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

Json = dict[str, Any]

_WORDS = (
    *("weather", "caf\u00e9", "\u65e5\u672c\u8a9e", "\U0001f642", "a/b", '"quoted"', "", "  "),
    *("<b>", "null", "line\nline", "\ttab", "{{ x }}", "'s", "x" * 60),
)
_SCHEMAS: tuple[Json, ...] = (
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    {"properties": {"n": {"type": "integer", "minimum": 1}}},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "$defs": {"a": {"enum": ["\u00e9", 1.5, None, True]}}},
)
_INPUTS: tuple[Json, ...] = (
    {},
    {"city": "Z\u00fcrich"},
    {"n": 3, "f": 1.50, "e": 1e22, "deep": {"list": [1, [2, None]], "t": True}},
    {"text": 'a "b"\n\\'},
)
_SIZES = ((28, 28), (100, 60), (300, 200), (57, 311), (1, 1))


class Random(random.Random):
    """A source of random requests for an engine. Engines differ in the members that they take."""

    def __init__(self, engine: str, seed: int) -> None:
        super().__init__(seed)
        self.engine = engine

    def text(self) -> str:
        """Return a text with a beginning that no other text has."""
        words = self.choices(_WORDS, k=self.randrange(1, 5))
        return " ".join([secrets.token_hex(self.randrange(2, 20)), *words])

    def maybe(self, make: Callable[[], Json], odds: float = 0.5) -> Json:
        """Return these members, or none."""
        return make() if self.random() < odds else {}

    def image(self) -> str:
        """Return the base64 of an image that no engine has seen."""
        width, height = self.choice(_SIZES)
        noise = np.random.default_rng().integers(0, 256, (height, width, 3), np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(noise).save(buffer, self.choice(("PNG", "BMP")))
        return base64.b64encode(buffer.getvalue()).decode()

    def template_kwargs(self) -> Json:
        """Return variables of the template. One of them gives each prompt a beginning of its own."""
        thinking = self.maybe(lambda: {"enable_thinking": False}, 0.1)
        return {"chat_template_kwargs": {"nonce": secrets.token_hex(8), **thinking}}

    def names(self) -> list[str]:
        """Return the names of some tools."""
        return [f"tool_{n}" for n in range(self.randrange(4))]


def messages(rng: Random) -> Json:
    """Return a Messages request (Anthropic)."""
    names = rng.names()
    body: Json = {"model": "tiny", "max_tokens": 1, "messages": _turns(rng, names)}
    if names:
        body["tools"] = [_messages_tool(rng, name) for name in names]
        body |= rng.maybe(lambda: {"tool_choice": {"type": rng.choice(("auto", "none"))}})
    body |= rng.maybe(lambda: {"system": _system(rng)}, 0.6)
    body |= rng.maybe(lambda: {"metadata": {"user_id": "u"}, "temperature": 0.5, "top_k": 5}, 0.2)
    body |= rng.maybe(lambda: {"stop_sequences": ["\n\n"], "stream": False}, 0.2)
    efforts = ("low", "medium", "high", "xhigh", "max")
    body |= rng.maybe(lambda: {"output_config": {"effort": rng.choice(efforts)}}, 0.2)
    if rng.engine == "vllm":  # in SGLang, the parser of reasoning decides about thinking
        kinds: tuple[Json, ...] = ({"type": "disabled"}, {"type": "adaptive"})
        body |= rng.maybe(lambda: {"thinking": rng.choice(kinds)}, 0.3)
        body |= rng.maybe(lambda: {"cache_salt": secrets.token_hex(8)}, 0.2)
        body |= rng.template_kwargs()
        if names:
            body["messages"] += rng.maybe(lambda: {"x": _tool_change(rng, names)}, 0.2).values()
    return body


def _turns(rng: Random, names: list[str]) -> list[Json]:
    turns: list[Json] = []
    for _ in range(rng.randrange(3)):
        turns.append({"role": "user", "content": _user_content(rng)})
        turns += _assistant_turn(rng, names)
        if rng.random() < 0.2:
            turns.append({"role": "system", "content": rng.choice((rng.text(), [_text(rng)]))})
    return [*turns, {"role": "user", "content": _user_content(rng)}]


def _user_content(rng: Random) -> str | list[Json]:
    if rng.random() < 0.3:
        return rng.text()
    kinds = rng.choices(("text", "image", "empty"), (6, 3, 1), k=rng.randrange(1, 4))
    made = [_text(rng)]
    for kind in kinds:
        if kind == "image":
            made.append(_image(rng))
        else:
            made.append(_text(rng) if kind == "text" else {"type": "text", "text": ""})
    rng.shuffle(made)
    return made


def _text(rng: Random) -> Json:
    marked = rng.maybe(lambda: {"cache_control": {"type": "ephemeral"}}, 0.2)
    return {"type": "text", "text": rng.text(), **marked}


def _image(rng: Random) -> Json:
    data = rng.image()
    if rng.random() < 0.3:
        return {
            "type": "image",
            "source": {"type": "url", "url": f"data:image/png;base64,{data}"},
        }
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def _assistant_turn(rng: Random, names: list[str]) -> list[Json]:
    if rng.random() < 0.3 or not names:
        content = rng.choice((rng.text(), [_text(rng)], [_text(rng), _text(rng)]))
        return [{"role": "assistant", "content": content}]
    blocks: list[Json] = []
    if rng.engine == "vllm":
        thinking = {"type": "thinking", "thinking": rng.text(), "signature": "s"}
        redacted = {"type": "redacted_thinking", "data": "x"}
        blocks = rng.sample([thinking, redacted], rng.randrange(3))
    blocks += [_text(rng)] if rng.random() < 0.5 else []
    calls = [
        {
            "type": "tool_use",
            "id": f"toolu_{secrets.token_hex(4)}",
            "name": rng.choice(names),
            "input": rng.choice(_INPUTS),
        }
        for _ in range(rng.randrange(1, 3))
    ]
    results = [_tool_result(rng, call, names) for call in calls]
    results += [_text(rng)] if rng.random() < 0.5 else []
    if rng.engine == "sglang" and rng.random() < 0.2:
        results.insert(0, _text(rng))
    return [
        {"role": "assistant", "content": blocks + calls},
        {"role": "user", "content": results},
    ]


def _tool_result(rng: Random, call: Json, names: list[str]) -> Json:
    items = [
        rng.choice(
            (
                _text(rng),
                _image(rng),
                {"type": "text", "text": rng.text()},
                {"type": "tool_reference", "tool_name": rng.choice(names)},
            )
        )
        for _ in range(rng.randrange(3))
    ]
    content: Json = {"content": rng.choice((rng.text(), items, items, ""))}
    return {
        "type": "tool_result",
        "tool_use_id": call["id"],
        **rng.maybe(lambda: content, 0.9),
        **rng.maybe(lambda: {"is_error": True}, 0.2),
    }


def _system(rng: Random) -> str | list[Json]:
    billing = f"x-anthropic-billing-header: cch={secrets.token_hex(3)}"
    return rng.choice(
        (
            rng.text(),
            [_text(rng)],
            [{"type": "text", "text": billing}, _text(rng), _text(rng)],
            f"{billing}\n{rng.text()}",
        )
    )


def _messages_tool(rng: Random, name: str) -> Json:
    return {
        "name": name,
        **rng.maybe(lambda: {"description": rng.text()}),
        "input_schema": dict(rng.choice(_SCHEMAS)),
        **rng.maybe(lambda: {"defer_loading": rng.random() < 0.5}, 0.2),
        **rng.maybe(lambda: {"strict": rng.random() < 0.5}, 0.2),
        **rng.maybe(lambda: {"cache_control": {"type": "ephemeral"}}, 0.2),
    }


def _tool_change(rng: Random, names: list[str]) -> Json:
    reference = {"type": "tool_reference", "name": rng.choice(names)}
    added = {"name": "added", "input_schema": dict(rng.choice(_SCHEMAS))}
    blocks = (
        {"type": "tool_removal", "tool": reference},
        {"type": "tool_addition", "tool": reference},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": added}},
    )
    return {"role": "system", "content": [rng.choice(blocks), *rng.choice(([], [_text(rng)]))]}


def responses(rng: Random) -> Json:
    """Return a Responses request (OpenAI)."""
    names = rng.names()
    body: Json = {"model": "tiny", "max_output_tokens": 1 if rng.engine == "vllm" else 3}
    body["input"] = rng.text() if rng.random() < 0.15 else _items(rng, names)
    if names or rng.random() < 0.2:
        body["tools"] = [_responses_tool(rng, name) for name in names]
        body |= rng.maybe(lambda: {"tool_choice": rng.choice(("auto", "none"))})
    body |= rng.maybe(lambda: {"instructions": rng.choice((rng.text(), rng.text(), ""))})
    body |= rng.maybe(lambda: {"metadata": {"a": "b"}, "temperature": 0.5, "store": False}, 0.2)
    body |= rng.maybe(lambda: {"text": {"format": {"type": "text"}}, "user": "u"}, 0.2)
    body |= rng.maybe(lambda: {"truncation": rng.choice(("auto", "disabled"))}, 0.2)
    body |= rng.maybe(lambda: {"prompt_cache_key": "k", "parallel_tool_calls": False}, 0.2)
    efforts = ("none", "minimal", "low", "high", None)
    body |= rng.maybe(lambda: {"reasoning": {"effort": rng.choice(efforts)}}, 0.3)
    body |= rng.maybe(lambda: {"cache_salt": secrets.token_hex(8)}, 0.2)
    return body | rng.template_kwargs()


def _items(rng: Random, names: list[str]) -> list[Json]:
    items: list[Json] = []
    if rng.random() < 0.3:
        role = rng.choice(("system", "developer"))
        items.append({"role": role, "content": rng.choice((rng.text(), [_input_text(rng)]))})
    for _ in range(rng.randrange(3)):
        items.append(_input_message(rng))
        items += _output_items(rng, names)
    if not items or items[-1].get("role") == "assistant" or rng.random() < 0.7:
        items.append(_input_message(rng))
    if rng.engine == "vllm" and rng.random() < 0.1:  # a message to continue
        begun = {"role": "assistant", "status": rng.choice(("incomplete", "in_progress"))}
        items.append({"type": "message", **begun, "content": [_output_text(rng)]})
    return items


def _input_message(rng: Random) -> Json:
    parts = [_input_text(rng)]
    parts += [_input_image(rng) for _ in range(rng.choice((0, 0, 1, 2)))]
    rng.shuffle(parts)
    return {
        **rng.maybe(lambda: {"type": "message"}),
        "role": "user",
        "content": rng.text() if rng.random() < 0.3 else parts,
    }


def _input_text(rng: Random) -> Json:
    return {"type": "input_text", "text": rng.text()}


def _input_image(rng: Random) -> Json:
    url = f"data:image/png;base64,{rng.image()}"
    detail = rng.maybe(lambda: {"detail": rng.choice(("auto", "low", "high"))})
    return {"type": "input_image", "image_url": url, **detail}


def _output_items(rng: Random, names: list[str]) -> list[Json]:
    """Return one to four items of a model's output, and the results of its tool calls."""
    items: list[Json] = []
    if rng.random() < 0.3:
        items.append(
            {
                "type": "reasoning",
                **rng.maybe(lambda: {"id": "rs_1"}),
                "summary": rng.choice(([], [{"type": "summary_text", "text": rng.text()}])),
                **rng.maybe(lambda: {"content": [{"type": "reasoning_text", "text": rng.text()}]}),
            }
        )
    if rng.random() < 0.7:
        message = {
            "type": "message",
            "role": "assistant",
            "content": [_output_text(rng)],
            **rng.maybe(lambda: {"id": "msg_1", "status": "completed"}),
        }
        items.append(rng.choice((message, {"role": "assistant", "content": rng.text()})))
    if not names:
        return items
    for _ in range(rng.randrange(3)):
        call_id = f"call_{secrets.token_hex(4)}"
        items += rng.choice((_function_call, _custom_call))(rng, call_id, rng.choice(names))
    return items


def _output_text(rng: Random) -> Json:
    return {"type": "output_text", "text": rng.text(), **rng.maybe(lambda: {"annotations": []})}


def _function_call(rng: Random, call_id: str, name: str) -> list[Json]:
    arguments = json.dumps(rng.choice(_INPUTS), ensure_ascii=rng.random() < 0.5)
    output = [rng.choice((_input_text, _input_image))(rng) for _ in range(rng.randrange(1, 3))]
    for part in output:
        if part["type"] == "input_image":
            part.setdefault("detail", "auto")  # vLLM requires it here
    return [
        {
            "type": "function_call",
            "call_id": call_id,
            "name": name,
            "arguments": rng.choice((arguments, arguments, "", "[1]", "{")),
            **rng.maybe(lambda: {"id": "fc_1", "status": "completed"}),
            **rng.maybe(lambda: {"namespace": "ns"}, 0.2),
        },
        {
            "type": "function_call_output",
            "call_id": call_id,
            "output": rng.choice((rng.text(), output)),
            **rng.maybe(lambda: {"id": "fco_1"}, 0.2),
            **rng.maybe(lambda: {"status": "completed"}, 0.2),
        },
    ]


def _custom_call(rng: Random, call_id: str, name: str) -> list[Json]:
    return [
        {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": rng.text()},
        {"type": "custom_tool_call_output", "call_id": call_id, "output": rng.text()},
    ]


def _responses_tool(rng: Random, name: str) -> Json:
    described = rng.maybe(lambda: {"description": rng.text()})
    function = {
        "type": "function",
        "name": name,
        **described,
        "parameters": dict(rng.choice(_SCHEMAS)),
        **rng.maybe(lambda: {"strict": rng.random() < 0.5}),
        **rng.maybe(lambda: {"defer_loading": rng.random() < 0.5}, 0.2),
    }
    custom = {"type": "custom", "name": name, **described}
    space = {"type": "namespace", "name": f"ns_{name}", "description": "d", "tools": [function]}
    others = [custom, {"type": "web_search_preview"}]
    return rng.choice((function, function, function, *others, space))


def chat(rng: Random) -> Json:
    """Return a chat (OpenAI)."""
    names = rng.names()
    turns: list[Json] = []
    if rng.random() < 0.5:
        turns.append({"role": rng.choice(("system", "developer")), "content": rng.text()})
    for _ in range(rng.randrange(3)):
        turns.append({"role": "user", "content": _chat_content(rng)})
        turns += _chat_answer(rng, names)
    body: Json = {"model": "tiny", "max_tokens": 1, "messages": turns}
    turns.append({"role": "user", "content": _chat_content(rng)})
    if rng.random() < 0.3:
        turns.append({"role": "assistant", "content": rng.text()})
        body["continue_final_message"] = rng.random() < 0.7
        if rng.engine == "vllm" and body["continue_final_message"]:
            body["add_generation_prompt"] = False
    if names:
        body["tools"] = [_chat_tool(rng, name) for name in names]
        body |= rng.maybe(lambda: {"tool_choice": rng.choice(("auto", "none"))})
    body |= rng.maybe(lambda: {"reasoning_effort": rng.choice(("none", "low", "high"))}, 0.3)
    body |= rng.template_kwargs()
    body |= rng.maybe(lambda: {"cache_salt": secrets.token_hex(8)}, 0.2)
    return body | rng.maybe(lambda: {"temperature": 0.5, "user": "u", "unknown": 1}, 0.2)


def _chat_content(rng: Random) -> str | list[Json]:
    parts: list[Json] = [{"type": "text", "text": rng.text()}]
    parts += [
        {"type": "image_url", "image_url": {"url": _url(rng)}}
        for _ in range(rng.choice((0, 0, 1, 2)))
    ]
    rng.shuffle(parts)
    return rng.text() if rng.random() < 0.3 else parts


def _url(rng: Random) -> str:
    return f"data:image/png;base64,{rng.image()}"


def _chat_answer(rng: Random, names: list[str]) -> list[Json]:
    if not names or rng.random() < 0.3:
        return [{"role": "assistant", "content": rng.text()}]
    calls = [
        {
            "id": f"call_{secrets.token_hex(4)}",
            "type": "function",
            "function": {"name": rng.choice(names), "arguments": json.dumps(rng.choice(_INPUTS))},
        }
        for _ in range(rng.randrange(1, 3))
    ]
    content = rng.choice(({}, {"content": None}, {"content": rng.text()}))
    return [
        {"role": "assistant", "tool_calls": calls, **content},
        *(
            {"role": "tool", "tool_call_id": call["id"], "content": _chat_content(rng)}
            for call in calls
        ),
    ]


def _chat_tool(rng: Random, name: str) -> Json:
    function: Json = {
        "name": name,
        **rng.maybe(lambda: {"description": rng.text()}),
        "parameters": dict(rng.choice(_SCHEMAS)),
        **rng.maybe(lambda: {"strict": rng.random() < 0.5}, 0.3),
        **rng.maybe(lambda: {"defer_loading": True}, 0.1),
    }
    members = list(function.items())
    rng.shuffle(members)
    deferred = rng.maybe(lambda: {"defer_loading": rng.random() < 0.5}, 0.2)
    return {"type": "function", "function": dict(members), **deferred}


def completions(rng: Random) -> Json:
    """Return a completion (OpenAI): a prompt or a batch, of texts or of token ids."""
    count = rng.choice((1, 1, 2, 5))
    prompts: list[Any] = [rng.text() * rng.randrange(1, 4) for _ in range(count)]
    if rng.random() < 0.5:
        prompts = [list(secrets.token_bytes(rng.randrange(1, 200))) for _ in range(count)]
    body: Json = {"model": "tiny", "max_tokens": 1}
    body["prompt"] = prompts[0] if count == 1 and rng.random() < 0.7 else prompts
    body |= rng.maybe(lambda: {"cache_salt": secrets.token_hex(8)}, 0.2)
    return body | rng.maybe(lambda: {"temperature": 0.5, "user": "u", "echo": False}, 0.2)
