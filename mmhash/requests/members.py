"""Read the members of a request. An error names the member that has the wrong type."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from mmhash.errors import InputValueError
from mmhash.requests.engine_request import UnplannedError


def refuse(members: Mapping[str, Any], name: str) -> None:
    """Refuse a request with this member, because no plan covers how it changes prompt or keys."""
    if members.get(name) is not None:
        raise UnplannedError(f"no plan for a request with {name}")


def read_object(members: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a member that is an object, or an empty object if it is missing."""
    value = members.get(name)
    if value is not None and not isinstance(value, dict):
        raise InputValueError(f"{name} must be an object")
    return value or {}


def read_objects(members: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a member that is a list of objects, or an empty list if it is missing."""
    value = members.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InputValueError(f"{name} must be a list of objects")
    return value


def expect_text(name: str, value: Any) -> str:
    """Return the value if it is a text. Raise if it is not."""
    if not isinstance(value, str):
        raise InputValueError(f"{name} must be a text")
    return value


def read_text(members: Mapping[str, Any], name: str) -> str | None:
    """Return a member that is a text, or None if it is missing or empty."""
    value = members.get(name)
    return None if value is None else expect_text(f"{name} of a request", value) or None


def read_switch(members: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return a member that is true or false. Texts and numbers, which vLLM accepts, are refused."""
    value = members.get(name, default)
    if not isinstance(value, bool):
        raise InputValueError(f"{name} must be true or false")
    return value


def read_template_kwargs(body: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """Return the variables that a request gives to the chat template.

    Refuse the names in `refused`.
    """
    given = body.get("chat_template_kwargs") or {}
    if not isinstance(given, dict) or not given.keys().isdisjoint(refused):
        raise InputValueError(
            "chat_template_kwargs must be an object without chat_template, messages and tools"
        )
    return given


def completion_prompts(
    body: Mapping[str, Any], encode: Callable[[str], list[int]]
) -> list[list[int]]:
    """Return the ids of each prompt of a completion: one text, token ids, or a list of these."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(one, str) for one in prompt):
        return [encode(one) for one in prompt]
    if isinstance(prompt, list) and prompt and all(isinstance(one, list) for one in prompt):
        return [expect_ids("prompt", one) for one in prompt]
    return [encode(prompt) if isinstance(prompt, str) else expect_ids("prompt", prompt)]


def expect_ids(name: str, value: Any) -> list[int]:
    """Return the value if it is a list of token ids. Raise if it is not."""
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise InputValueError(f"{name} must be a text or a list of token ids, for one prompt")
    return value


def arguments_of(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a tool call. Anything but an object counts as an empty object."""
    value = function.get("arguments")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}
