"""Convert Responses to a chat as vLLM does (0.32: entrypoints/openai/responses)."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mmhash.engines.releases import is_since
from mmhash.errors import InputValueError
from mmhash.json_pointer import Path
from mmhash.requests.members import expect_text, read_objects
from mmhash.requests.response_items import CUSTOM_PARAMETERS, ReadPart, items_of

_COPIED = (
    *("model", "chat_template_kwargs", "cache_salt", "kv_transfer_params"),
    *("media_io_kwargs", "mm_processor_kwargs"),
)

_PARTIAL = ("in_progress", "incomplete")


def convert(members: Mapping[str, Any], release: str, read_part: ReadPart) -> dict[str, Any]:
    """Return the members of the chat."""
    if not is_since(release, "0.32.0rc0"):
        raise InputValueError("mmhash plans Responses requests for vLLM 0.32.0 and newer")
    chat = {name: members[name] for name in _COPIED if name in members}
    items = list(items_of(members))
    chat["messages"] = _messages(items, read_part)
    if tools := read_objects(members, "tools"):
        chat["tools"] = list(_tools(tools))
    reasoning = members.get("reasoning")
    chat["reasoning_effort"] = reasoning.get("effort") if isinstance(reasoning, dict) else None
    is_continued = bool(items) and _is_partial(items[-1][1])
    chat |= {"continue_final_message": is_continued, "add_generation_prompt": not is_continued}
    return chat


def _messages(
    items: Iterable[tuple[Path, dict[str, Any]]], read_part: ReadPart
) -> list[dict[str, Any]]:
    """Return the messages.

    The assistant's consecutive text, reasoning and calls form one message.
    """
    made: list[dict[str, Any]] = []
    for path, item in items:
        message = _message(item, path, read_part)
        previous = made[-1] if made and made[-1].get("role") == "assistant" else None
        if previous is None or not _join(previous, message):
            made.append(message)
    return made


def _join(previous: dict[str, Any], message: dict[str, Any]) -> bool:
    """Merge a message into the assistant's previous message, unless both have the same member."""
    if message["role"] != "assistant":
        return False
    (name,) = message.keys() - {"role"}
    if name == "tool_calls":
        previous.setdefault(name, []).extend(message[name])
    elif previous.get(name) is None:
        previous[name] = message[name]
    else:
        return False
    return True


def _message(item: dict[str, Any], path: Path, read_part: ReadPart) -> dict[str, Any]:
    type_ = item.get("type", "message")
    if type_ in {"function_call", "custom_tool_call"}:
        return {"role": "assistant", "tool_calls": [_call(item)]}
    if type_ == "reasoning":
        return {"role": "assistant", "reasoning": _reasoning(item)}
    if type_ in {"function_call_output", "custom_tool_call_output"}:
        output = item.get("output")
        if isinstance(output, list):
            output = _parts(output, (*path, "output"), read_part)
        return {"role": "tool", "content": output, "tool_call_id": item.get("call_id")}
    role, content = item.get("role"), item.get("content")
    if type_ != "message" or not isinstance(role, str):
        raise InputValueError(f"no plan for an item of type {str(type_)[:40]!r}")
    if role == "assistant":
        if isinstance(content, list) and content and isinstance(content[0], dict):
            content = content[0].get("text")
        return {"role": role, "content": expect_text("content of an assistant", content)}
    if isinstance(content, list):
        content = _parts(content, (*path, "content"), read_part, detail="auto")
    return {**item, "content": content}


def _parts(
    parts: list[Any], path: Path, read_part: ReadPart, detail: str | None = None
) -> list[Any]:
    made: list[Any] = []
    for number, part in enumerate(parts):
        if isinstance(part, dict) and part.get("type") == "input_image":
            shown = part.get("detail", detail)
            part = ({} if shown is None else {"detail": shown}) | part  # noqa: PLW2901
            read_part(part, (*path, number))
        made.append(part)
    return made


def _call(item: dict[str, Any]) -> dict[str, Any]:
    name = expect_text("the name of a tool call", item.get("name"))
    if item["type"] == "custom_tool_call":
        payload = item.get("input") or ""
        arguments = json.dumps({"input": payload}, ensure_ascii=False)
    else:
        arguments = expect_text("the arguments of a function call", item.get("arguments"))
        if namespace := item.get("namespace"):
            name = f"{namespace}__{name}"
    function = {"name": name, "arguments": arguments}
    return {"id": item.get("call_id"), "function": function, "type": "function"}


def _reasoning(item: dict[str, Any]) -> str:
    if item.get("encrypted_content"):
        raise InputValueError("no plan for encrypted reasoning")
    parts = item.get("content") or item.get("summary") or [{"text": ""}]
    first = parts[0] if isinstance(parts, list) else None
    return expect_text("reasoning", first.get("text") if isinstance(first, dict) else None)


def _tools(tools: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the tools for the template. vLLM drops all other tools, such as web search."""
    for tool in tools:
        if tool.get("type") == "function":
            yield {"type": "function", "function": tool}
        elif tool.get("type") == "custom":
            shown = {name: tool.get(name) for name in ("name", "description")}
            function = {**shown, "parameters": CUSTOM_PARAMETERS}
            yield {"type": "function", "function": function}
        elif tool.get("type") == "namespace":
            for one in read_objects(tool, "tools"):
                if one.get("type") == "function":
                    name = f"{tool.get('name')}__{one.get('name')}"
                    yield {"type": "function", "function": {**one, "name": name}}


def _is_partial(item: Mapping[str, Any]) -> bool:
    is_known = item.get("type", "message") in {"message", "reasoning"}
    return is_known and item.get("status") in _PARTIAL
