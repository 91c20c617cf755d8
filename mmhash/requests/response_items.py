"""Input items of Responses requests, as every engine validates them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mmhash.errors import InputValueError
from mmhash.json_pointer import Path
from mmhash.requests.members import expect_text

ReadPart = Callable[[dict[str, Any], Path], None]
"""Add the media of a content part, given the part's place in the document."""

CUSTOM_PARAMETERS = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "The freeform text payload for this tool."}
    },
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters that the engines give to a tool of type custom."""


def items_of(members: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the items, each with its place. Instructions and an input of text become messages."""
    if instructions := members.get("instructions"):
        yield (), {"role": "system", "content": expect_text("instructions", instructions)}
    given = members.get("input")
    if isinstance(given, str):
        yield (), {"role": "user", "content": given}
        return
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise InputValueError("input must be a text or a list of objects")
    if not all(isinstance(one.get("type"), str | None) for one in given):
        raise InputValueError("the type of an input item must be a text")
    for index, item in enumerate(given):
        yield ("input", index), item
