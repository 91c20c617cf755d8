"""Members of a request, each read with its type checked: another one is an error that names it."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from mmhash.errors import InputValueError
from mmhash.requests import UnplannedError


def refuse(members: Mapping[str, Any], name: str) -> None:
    """Refuse a request whose prompt or keys depend on a member that no plan reads."""
    if members.get(name) is not None:
        raise UnplannedError(f"no plan for a request with {name}")


def read_object(members: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a member that is an object; a missing one is empty."""
    value = members.get(name)
    if value is not None and not isinstance(value, dict):
        raise InputValueError(f"{name} is an object")
    return value or {}


def read_text(members: Mapping[str, Any], name: str) -> str | None:
    """Return a member that is a text; an empty one counts as none."""
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise InputValueError(f"{name} of a request is a text")
    return value or None


def read_switch(members: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return a member that is true or false: vLLM also takes texts and numbers for these."""
    value = members.get(name, default)
    if not isinstance(value, bool):
        raise InputValueError(f"{name} is true or false")
    return value


def read_template_kwargs(body: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """Return the variables that a request gives to the chat template, none of them `refused`."""
    given = body.get("chat_template_kwargs") or {}
    if not isinstance(given, dict) or not given.keys().isdisjoint(refused):
        raise InputValueError(
            "chat_template_kwargs is an object without a template, messages and tools of its own"
        )
    return given


def completion_prompts(
    body: Mapping[str, Any], encode: Callable[[str], list[int]]
) -> list[list[int]]:
    """Return the ids of each prompt of a completion: a text, token ids, or a list of either."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(one, str) for one in prompt):
        return [encode(one) for one in prompt]
    if isinstance(prompt, list) and prompt and all(isinstance(one, list) for one in prompt):
        return [check_ids("prompt", one) for one in prompt]
    return [encode(prompt) if isinstance(prompt, str) else check_ids("prompt", prompt)]


def check_ids(name: str, value: Any) -> list[int]:
    """Return a list of token ids; anything else is an error."""
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise InputValueError(f"{name} is a text or a list of token ids, for one prompt")
    return value
