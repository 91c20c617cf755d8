"""Content blocks of Messages requests, as every engine validates them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from mmhash.errors import InputValueError
from mmhash.requests.members import expect_text

AddImage = Callable[[Any], dict[str, Any]]
"""Add the image of a source, and return the image's part of the chat."""


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """Return the blocks of a message."""
    if not isinstance(content, list) or not all(
        isinstance(one, dict) and isinstance(one.get("type"), str) for one in content
    ):
        raise InputValueError("content must be a text or a list of blocks, each with a type")
    return content


def messages_of(members: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a request."""
    messages: list[dict[str, Any]] = members["messages"]
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant", "system"):  # the role may be unhashable
            raise InputValueError("the role of each message must be user, assistant or system")
    return messages


def text_of(value: Any) -> str:
    """Return the value if it is a text. Raise if it is not."""
    return expect_text("the text of a block", value)


def call_of(block: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a block of type tool_use to a chat's tool call."""
    if not block.get("id"):
        raise InputValueError("a tool_use must have an id: the engine would draw one at random")
    arguments = json.dumps(block.get("input") or {})
    function = {"name": block.get("name") or "", "arguments": arguments}
    return {"id": block["id"], "type": "function", "function": function}


def schema_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's input."""
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise InputValueError("the input_schema of a tool must be an object")
    return schema if "type" in schema else {**schema, "type": "object"}
