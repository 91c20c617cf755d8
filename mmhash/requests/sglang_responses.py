"""Convert Responses to a chat as SGLang does (0.5.23: entrypoints/openai/serving_responses.py)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mmhash.engines.sglang.releases import reads_every_form
from mmhash.errors import InputValueError
from mmhash.json_pointer import Path
from mmhash.requests.members import arguments_of, expect_text, read_objects
from mmhash.requests.response_items import CUSTOM_PARAMETERS, ReadPart, items_of

_COPIED = ("model", "chat_template_kwargs", "cache_salt", "extra_key")

_DEVELOPER = "Developer instructions:"

# The prefix of the encrypted reasoning that clients keep for the engine.
_STATE_PREFIX = "sglang-reasoning-v1."


def convert(members: Mapping[str, Any], release: str, read_part: ReadPart) -> dict[str, Any]:
    """Return the members of the chat, with system messages in place.

    The template decides whether to join the system messages.
    """
    if not reads_every_form(release):
        raise InputValueError("mmhash plans Responses requests for SGLang 0.5.20 and 0.5.23 only")
    converted = (_message(item, path, read_part) for path, item in items_of(members))
    messages = [message for message in converted if message is not None]
    tools = list(_tools(read_objects(members, "tools")))
    reasoning = members.get("reasoning")
    return {
        **{name: members[name] for name in _COPIED if name in members},
        "messages": _joined(messages, release),
        "tools": tools or None,
        "tool_choice": _choice(members.get("tool_choice")) if tools else "none",
        "reasoning_effort": (
            reasoning.get("effort", "medium") if isinstance(reasoning, dict) else None
        ),
    }


def _message(item: dict[str, Any], path: Path, read_part: ReadPart) -> dict[str, Any] | None:
    """Return the message of an item, or None for reasoning without a text."""
    match item.get("type"):
        case "function_call":
            return _call(item, arguments_of(item))
        case "custom_tool_call":
            return _call(item, {"input": item.get("input") or ""})
        case "function_call_output" | "custom_tool_call_output":
            output = item.get("output", "")
            if isinstance(output, list):
                parts = (part for part in output if isinstance(part, dict))
                output = "".join(_text(part) for part in parts)
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
        case "reasoning":
            text = _reasoning(item)
            return {"role": "assistant", "reasoning_content": text} if text else None
        case None | "message":
            return _plain_message(item, path, read_part)
        case type_:
            raise InputValueError(f"no plan for an item of type {str(type_)[:40]!r}")


def _plain_message(item: dict[str, Any], path: Path, read_part: ReadPart) -> dict[str, Any]:
    left_out = {"id", "status", "type"}
    made = {name: one for name, one in item.items() if one is not None and name not in left_out}
    content = made.get("content")
    if isinstance(content, list):
        made["content"] = content = [
            _part(part, (*path, "content", number), read_part)
            for number, part in enumerate(content)
        ]
    if made.get("role") == "developer":
        made |= {"role": "system", "content": _labelled(content)}
    return made


def _part(part: Any, path: Path, read_part: ReadPart) -> Any:
    if not isinstance(part, dict):
        return part
    match part.get("type"):
        case "input_text" | "output_text":
            return {"type": "text", "text": part.get("text", "")}
        case "input_image" | "image_url":
            read_part(part, path)
    return part


def _labelled(content: Any) -> Any:
    """Return the content of a developer's message, which becomes a system message."""
    if isinstance(content, str):
        return f"{_DEVELOPER}\n{content}"
    if not isinstance(content, list):
        return content
    for index, part in enumerate(content):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            labelled = {**part, "text": f"{_DEVELOPER}\n{part['text']}"}
            return [*content[:index], labelled, *content[index + 1 :]]
    return [{"type": "text", "text": _DEVELOPER}, *content]


def _call(item: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": arguments}
    call = {"id": item.get("call_id") or item.get("id"), "type": "function", "function": function}
    return {"role": "assistant", "tool_calls": [call]}


def _reasoning(item: dict[str, Any]) -> str:
    for name in ("summary", "content"):
        texts = [_text(one) for one in read_objects(item, name) if one.get("text")]
        if texts:
            return "\n".join(texts)
    state = item.get("encrypted_content")
    if isinstance(state, str) and state.startswith(_STATE_PREFIX):
        raise InputValueError("no plan for encrypted reasoning")
    return ""


def _joined(messages: list[dict[str, Any]], release: str) -> list[dict[str, Any]]:
    """Join consecutive messages of the assistant."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        previous = joined[-1] if joined else None
        if (
            message.get("role") == "assistant"
            and previous is not None
            and previous.get("role") == "assistant"
            and (
                previous.get("phase") == message.get("phase")
                or (release != "0.5.20" and previous.keys() == {"role", "reasoning_content"})
            )
        ):
            joined[-1] = _join(previous, message, release)
        else:
            joined.append(message)
    return joined


def _join(one: dict[str, Any], other: dict[str, Any], release: str) -> dict[str, Any]:
    made = dict(one)
    if release != "0.5.20" and other.get("phase") is not None:
        made["phase"] = other["phase"]
    if other.get("content") not in (None, ""):
        if one.get("content") in (None, ""):
            made["content"] = other["content"]
        elif isinstance(one["content"], str) and isinstance(other["content"], str):
            made["content"] = f"{one['content']}\n\n{other['content']}"
        else:
            made["content"] = _as_parts(one["content"]) + _as_parts(other["content"])
    if calls := other.get("tool_calls"):
        made["tool_calls"] = (one.get("tool_calls") or []) + calls
    if reasoning := other.get("reasoning_content"):
        before = one.get("reasoning_content")
        made["reasoning_content"] = f"{before}\n{reasoning}" if before else reasoning
    return made


def _as_parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _tools(tools: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the tools for the template. SGLang drops built-in tools and namespaces."""
    for tool in tools:
        if tool.get("type") == "shell":
            raise InputValueError("no plan for a tool of type shell")
        function = {name: tool.get(name) for name in ("name", "description", "parameters")}
        function["strict"] = tool.get("strict", False)
        if tool.get("type") == "custom" and tool.get("name"):
            function |= {"description": _description(tool), "parameters": CUSTOM_PARAMETERS}
        elif tool.get("type") != "function":
            continue
        yield {"type": "function", "function": function}


def _description(tool: Mapping[str, Any]) -> str | None:
    described = tool.get("description")
    parts = [expect_text("the description of a tool", described)] if described else []
    form = tool.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar":
        syntax, definition = form.get("syntax") or "lark", form.get("definition") or ""
        parts.append(f"The payload must conform to this {syntax} grammar:\n{definition}")
    return "\n\n".join(parts) or None


def _choice(choice: Any) -> Any:
    """Convert a choice of tools to the form of a chat: a named tool or a text."""
    if not isinstance(choice, dict):
        return choice or "auto"
    function = choice.get("function")
    name = choice.get("name") or (function.get("name") if isinstance(function, dict) else None)
    if choice.get("type") in ("function", "custom") and name:
        return {"type": "function", "function": {"name": name}}
    return "auto"


def _text(part: Mapping[str, Any]) -> str:
    return expect_text("the text of an item", part.get("text", ""))
