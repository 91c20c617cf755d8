"""Says which parts of a request a model refuses, and why.

A pointer has only names from the schema, so an unknown member is reported at its parent.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from mmhash_service.bodies.types import PATTERNS
from mmhash_service.problems.problem import InvalidPart, shown

# Report at most this many errors. Nobody reads more, and each takes time.
MAX_PARTS = 20

# Show at most this many characters of an unknown name.
_MAX_NAME = 64

_UNKNOWN = "extra_forbidden"
_MISSING = "missing"

# Our messages for these types of errors. They do not quote the value.
_REASONS = {
    _MISSING: "is missing",
    "string_unicode": "is not valid Unicode text",
    "too_long": "has more entries than the schema allows",
}

# How pydantic begins a message, and how ours goes on after the value.
_ENGLISH = {
    "Input should be": "is not",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "String should have": "does not have",
}

# Names that callers use instead of ours, and that are spelled too differently to be recognised.
_OTHER_NAMES = {"token_ids": "input_ids", "prompt_token_ids": "input_ids"}


def invalid_members(error: ValidationError, model: type[BaseModel]) -> list[InvalidPart]:
    """Return the invalid members of a JSON body, each by its JSON pointer (RFC 6901)."""
    names = _names(model)
    parts = [
        InvalidPart(
            _reason(entry, names, "member"),
            pointer="".join(f"/{step}" for step in _steps(entry, names)),
        )
        for entry in _entries(error)
    ]
    return list(dict.fromkeys(parts))


def invalid_parameters(error: ValidationError, model: type[BaseModel]) -> list[InvalidPart]:
    """Return the invalid parameters of a query."""
    names = _names(model)
    parts = []
    for entry in _entries(error):
        (name,) = [step for step in entry["loc"][:1] if step in names] or [None]
        reason = _reason(entry, model.model_fields, "parameter")
        parts.append(InvalidPart(reason, parameter=name and str(name)))
    return list(dict.fromkeys(parts))


def _entries(error: ValidationError) -> list[Any]:
    return error.errors(include_url=False)[:MAX_PARTS]


def _reason(entry: Any, known: Iterable[str], kind: str) -> str:
    match entry["type"]:
        case "extra_forbidden":
            return unknown_name(str(entry["loc"][-1]), known, kind)
        case "json_invalid":
            return f"the body is not JSON: {entry['ctx']['error']}"
    return reason_of(entry)


def reason_of(entry: Any) -> str:
    """Return the refused value, and what the model expects instead."""
    text = _REASONS.get(entry["type"])
    if text is not None:
        return text
    if entry["type"] == "int_type" and isinstance(entry["input"], str):
        return f"{shown(entry['input'])} is a string, not an integer"
    expected = PATTERNS.get(entry.get("ctx", {}).get("pattern"))
    message = f"is not {expected}" if expected else str(entry["msg"])
    for schema, english in _ENGLISH.items():
        message = message.replace(schema, english, 1)
    return f"{shown(entry['input'])} {message}"


def unknown_name(name: str, known: Iterable[str], kind: str) -> str:
    """Say that a name is unknown, and suggest the closest name or list all of them."""
    known = sorted(known)
    close = get_close_matches(name[:_MAX_NAME], known, n=1)
    other = _OTHER_NAMES.get(name)
    meant = other if other in known else next(iter(close), None)
    unknown = f"there is no {kind} {name[:_MAX_NAME]!r}"
    if meant is not None:
        return f"{unknown}: did you mean {meant!r}?"
    if kind == "member":  # `known` also has members of inner objects
        return unknown
    if kind == "parameter":
        return f"{unknown}: this call takes only {', '.join(known) or 'a body'}"
    choice = f"choose from {', '.join(known)}" if known else f"no {kind} is configured"
    return f"{unknown}: {choice}"


def _steps(entry: Any, names: frozenset[str]) -> Iterator[str | int]:
    """Yield the steps to a place, without branches of unions and unknown members."""
    place = entry["loc"][:-1] if entry["type"] == _UNKNOWN else entry["loc"]
    return (step for step in place if isinstance(step, int) or step in names)


def _names(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of all members in the schema of a model."""
    schema = model.model_json_schema()
    objects = (schema, *schema.get("$defs", {}).values())
    return frozenset(name for each in objects for name in each.get("properties", ()))
