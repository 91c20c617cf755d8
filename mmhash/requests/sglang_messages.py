"""Convert Messages to a chat as SGLang does (0.5.23: entrypoints/anthropic/serving.py)."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from mmhash.engines.sglang.releases import reads_every_form
from mmhash.errors import InputValueError
from mmhash.requests.members import read_object, read_objects
from mmhash.requests.message_blocks import (
    AddImage,
    blocks_of,
    call_of,
    messages_of,
    schema_of,
    text_of,
)

# SGLang drops Anthropic's server tools, whose types have these prefixes.
_SERVER_TOOLS = ("web_search_", "computer_", "bash_", "text_editor_")


def convert(members: Mapping[str, Any], release: str, add_image: AddImage) -> dict[str, Any]:
    """Return the members of the chat, with inline system messages in place.

    The template decides whether to join these with the first system message, which exists if
    `leading_system` is True. `thinks` is True if the prompt depends on the server's reasoning
    parser.
    """
    if not reads_every_form(release):
        raise InputValueError("mmhash plans Messages requests for SGLang 0.5.20 and 0.5.23 only")
    system = _system(members.get("system"))
    messages = [{"role": "system", "content": system}] if system else []
    for message in messages_of(members):
        role, content = message["role"], message.get("content")
        if isinstance(content, str):
            messages.append({"role": role, "content": content})
        else:
            messages += _chat_messages(role, blocks_of(content), add_image)
    effort = read_object(members, "output_config").get("effort")
    chat: dict[str, Any] = {
        "messages": messages,
        "leading_system": bool(system),
        "thinks": bool(read_object(members, "thinking")) or _has_thinking(members["messages"]),
    }
    if "model" in members:
        chat["model"] = members["model"]
    if effort is not None:  # unlike in a chat, it leaves thinking off
        chat["chat_template_kwargs"] = {"reasoning_effort": "max" if effort == "xhigh" else effort}
    tools = [_function(tool, release) for tool in _tools(members)]
    choice = read_object(members, "tool_choice")
    chat |= {"tools": tools or None, "tool_choice": _choice(choice) if tools else None}
    return chat


def _system(system: Any) -> str:
    if not system or isinstance(system, str):
        return system if system and system.strip() else ""
    texts = (block.get("text") for block in blocks_of(system) if block["type"] == "text")
    return "\n".join(text_of(text) for text in texts if text)


def _chat_messages(
    role: str, blocks: list[dict[str, Any]], add_image: AddImage
) -> Iterator[dict[str, Any]]:
    """Convert a message's blocks. A user's tool results become messages between the parts."""
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        type_ = block["type"]
        if type_ == "tool_use":
            calls.append(call_of(block))
        elif type_ == "tool_result" and role == "user":
            if parts:
                yield {"role": role, "content": _content(parts)}
                parts = []
            yield from _tool_result(block, add_image)
        elif type_ == "tool_result":
            texts = (part["text"] for part in _result_parts(block, add_image) if "text" in part)
            parts.append({"type": "text", "text": "Tool result: " + "\n".join(texts)})
        elif (part := _part(block, add_image)) is not None:
            parts.append(part)
    made: dict[str, Any] = {"role": role, **({"tool_calls": calls} if calls else {})}
    if parts or (not calls and role != "user"):
        made["content"] = _content(parts) if parts else ""
    if parts or calls or role != "user":
        yield made


def _content(parts: list[dict[str, Any]]) -> Any:
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(block: dict[str, Any], add_image: AddImage) -> dict[str, Any] | None:
    match block["type"]:
        case "text":
            return {"type": "text", "text": text_of(block.get("text"))}
        case "image":
            source = block.get("source")
            return add_image(source) if source and isinstance(source, dict) else None
        case "search_result":
            text = _search_result(block)
            return {"type": "text", "text": text} if text else None
        case "redacted_thinking":
            raise InputValueError("no plan for redacted thinking")
        case "thinking" | "tool_reference":
            return None
        case type_:
            raise InputValueError(f"no plan for a block of type {type_[:40]!r}")


def _tool_result(block: dict[str, Any], add_image: AddImage) -> Iterator[dict[str, Any]]:
    """Yield a message for each run of tool references, or of other parts."""
    answer = {"role": "tool", "tool_call_id": block.get("tool_use_id") or block.get("id") or ""}
    content = block.get("content")
    if not isinstance(content, list):
        yield {**answer, "content": text_of(content or "")}
        return
    parts = _result_parts(block, add_image)
    for _, run in groupby(parts, key=lambda part: part["type"] == "tool_reference"):
        yield {**answer, "content": _content(list(run))}
    if not parts:
        yield {**answer, "content": ""}


def _result_parts(block: dict[str, Any], add_image: AddImage) -> list[dict[str, Any]]:
    content = block.get("content")
    if not isinstance(content, list):
        return [{"type": "text", "text": text_of(content or "")}]
    parts: list[dict[str, Any]] = []
    for item in blocks_of(content):
        if item["type"] == "tool_reference":
            if name := item.get("tool_name") or item.get("name"):
                parts.append({"type": "tool_reference", "name": name})
        elif item["type"] in {"text", "image", "search_result"}:
            part = _part(item, add_image)
            parts += [part] if part is not None and part.get("text") != "" else []
    return parts


def _search_result(block: dict[str, Any]) -> str:
    source = block.get("source")
    if isinstance(source, dict):
        source = source.get("url") or source.get("text")
    texts = [
        part["text"]
        for part in block.get("content") or ()
        if isinstance(part, dict) and part.get("type") == "text" and part.get("text")
    ]
    lines = (
        ("Title", block.get("title")),
        ("Source", source),
        ("Content", "\n".join(map(text_of, texts))),
    )
    return "\n".join(f"{name}: {value}" for name, value in lines if value)


def _has_thinking(messages: Any) -> bool:
    return any(
        isinstance(block, dict) and block.get("type") == "thinking" and block.get("thinking")
        for message in messages
        if message.get("role") == "assistant" and isinstance(message.get("content"), list)
        for block in message["content"]
    )


def _tools(members: Mapping[str, Any]) -> list[dict[str, Any]]:
    tools = read_objects(members, "tools")
    return [one for one in tools if not str(one.get("type") or "").startswith(_SERVER_TOOLS)]


def _function(tool: Mapping[str, Any], release: str) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.get("name"),
        "description": tool.get("description") or "",
        "parameters": schema_of(tool),
    }
    if release != "0.5.20":
        function["strict"] = tool.get("strict", False)
    return {
        "type": "function",
        "function": function,
        "defer_loading": tool.get("defer_loading"),
    }


def _choice(choice: Mapping[str, Any]) -> Any:
    if choice.get("type") == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return "none" if choice.get("type") == "none" else "auto"
