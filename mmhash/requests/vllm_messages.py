"""Convert Messages to a chat as vLLM does (0.32: entrypoints/anthropic/serving.py)."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmhash.engines.releases import is_since
from mmhash.errors import InputValueError
from mmhash.requests.members import expect_text, read_object, read_objects
from mmhash.requests.message_blocks import (
    AddImage,
    blocks_of,
    call_of,
    messages_of,
    schema_of,
    text_of,
)

BILLING_HEADER = "x-anthropic-billing-header"
"""The prefix of Claude Code's billing line, which changes with every request. vLLM removes it."""

_COPIED = ("model", "chat_template_kwargs", "cache_salt", "kv_transfer_params")

_WITHOUT_PART = frozenset({"thinking", "redacted_thinking", "tool_reference"})


def convert(members: Mapping[str, Any], release: str, add_image: AddImage) -> dict[str, Any]:
    """Return the members of the chat, with inline system messages in place.

    The template decides whether to join these with the first system message, and which
    `reasoning_effort` stands for disabled `thinking`.
    """
    if not is_since(release, "0.32.0rc0"):
        raise InputValueError("mmhash plans Messages requests for vLLM 0.32.0 and newer")
    chat = {name: members[name] for name in _COPIED if name in members}
    chat["messages"] = list(_messages(members, add_image))
    tools = _tools(members)
    if tools is not None:
        functions = [{**tool, "parameters": schema_of(tool)} for tool in tools]
        chat["tools"] = [{"type": "function", "function": one} for one in functions]
    chat["reasoning_effort"] = read_object(members, "output_config").get("effort")
    chat["thinking"] = read_object(members, "thinking").get("type")
    return chat


def _messages(members: Mapping[str, Any], add_image: AddImage) -> Iterator[dict[str, Any]]:
    system = members.get("system")
    if system:
        text = system if isinstance(system, str) else _system_text(system)
        if text:
            yield {"role": "system", "content": text}
    for message in messages_of(members):
        role, content = message["role"], message.get("content")
        if role == "system":
            if text := _system_text(content):
                yield {"role": role, "content": text}
        elif isinstance(content, str):
            yield {"role": role, "content": content}
        else:
            yield from _chat_messages(role, blocks_of(content), add_image)


def _system_text(content: Any) -> str:
    if isinstance(content, str):
        return "" if content.startswith(BILLING_HEADER) else content
    texts = (block.get("text") for block in blocks_of(content) if block["type"] == "text")
    return "".join(text for text in texts if text and not text_of(text).startswith(BILLING_HEADER))


def _chat_messages(
    role: str, blocks: list[dict[str, Any]], add_image: AddImage
) -> Iterator[dict[str, Any]]:
    """Convert a message's blocks. Tool results become separate messages before this message."""
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    reasoning: list[str] = []
    for block in blocks:
        type_ = block["type"]
        if type_ == "thinking" and block.get("thinking") is not None:
            reasoning.append(text_of(block["thinking"]))
        elif type_ == "tool_use":
            calls.append(call_of(block))
        elif type_ == "tool_result" and role == "user":
            yield from _tool_result(block, add_image)
        elif (part := _part(block, add_image)) is not None:
            parts.append(part)
    made: dict[str, Any] = {"role": role}
    if reasoning:
        made["reasoning"] = "".join(reasoning)
    if calls:
        made["tool_calls"] = calls
    if parts:
        is_text = len(parts) == 1 and parts[0]["type"] == "text"
        made["content"] = parts[0]["text"] if is_text else parts
    if role == "assistant" or parts:
        yield made


def _part(block: dict[str, Any], add_image: AddImage) -> dict[str, Any] | None:
    type_ = block["type"]
    if type_ == "text":
        return {"type": "text", "text": text_of(block["text"])} if block.get("text") else None
    if type_ == "image":
        return add_image(block["source"]) if block.get("source") else None
    if type_ == "tool_result":
        return {"type": "text", "text": f"Tool result: {block.get('content') or ''}"}
    if type_ not in _WITHOUT_PART:
        raise InputValueError(f"no plan for a block of type {type_[:40]!r}")
    return None


def _tool_result(block: dict[str, Any], add_image: AddImage) -> Iterator[dict[str, Any]]:
    content = block.get("content")
    text, images, references = "", [], []
    if isinstance(content, str):
        text = content
    elif content is not None:
        texts = []
        for item in blocks_of(content):
            match item.get("type"):
                case "text":
                    texts.append(text_of(item.get("text", "")))
                case "image":
                    images.append(add_image(item.get("source", {})))
                case "tool_reference":
                    if name := item.get("tool_name") or item.get("name"):
                        references.append({"type": "tool_reference", "name": name})
        text = "\n".join(texts)
    answer = {"role": "tool", "tool_call_id": block.get("tool_use_id") or ""}
    yield {**answer, "content": text}
    if images:
        yield {"role": "user", "content": images}
    if references:
        yield {**answer, "content": references}


def _tools(members: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tools that remain after all blocks that add or remove tools."""
    given = read_objects(members, "tools")
    for tool in given:
        expect_text("the name of a tool", tool.get("name"))
    changes = [
        block
        for message in members["messages"]
        if isinstance(message.get("content"), list)
        for block in message["content"]
        if block["type"] in {"tool_addition", "tool_removal"}
    ]
    if not changes:
        return None if members.get("tools") is None else given
    tools = {tool["name"]: tool for tool in given}
    removed: set[str] = set()
    for block in changes:
        change = read_object(block, "tool")
        definition = change.get("definition")
        name = (definition if isinstance(definition, dict) else change).get("name")
        if not isinstance(name, str) or (definition is None and name not in tools):
            raise InputValueError("a block adds or removes a tool that the request does not define")
        if definition is not None:
            tools[name] = definition
        elif block["type"] == "tool_addition":
            tools[name] = {**tools[name], "defer_loading": None}
        if block["type"] == "tool_removal":
            removed.add(name)
        else:
            removed.discard(name)
    return [tool for name, tool in tools.items() if name not in removed]
