"""The places of a request that a model refuses.

A pointer contains only names from the schema: an unknown member is reported at its parent.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from mmhash_service.problems.problem import InvalidPart

# More errors would help nobody, and each takes time.
MAX_PARTS = 20

# How much of a name that the caller made up is shown.
_MAX_NAME = 64

_UNKNOWN = "extra_forbidden"
_MISSING = "missing"

# Types whose message contains only the schema, and types with a message of ours.
_REASONS = {
    _MISSING: "is missing",
    "json_invalid": "is not JSON",
    "string_unicode": "is not valid Unicode text",
    "too_long": "has more entries than the schema allows",
    "value_error": "is not allowed",
}


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
    """Return the invalid parameters of a query; an unknown parameter is not named."""
    names = _names(model)
    parts = []
    for entry in _entries(error):
        (name,) = [step for step in entry["loc"][:1] if step in names] or [None]
        reason = _reason(entry, model.model_fields, "parameter")
        parts.append(InvalidPart(reason, parameter=name and str(name)))
    return list(dict.fromkeys(parts))


def _entries(error: ValidationError) -> list[Any]:
    entries = error.errors(include_url=False, include_context=False, include_input=False)
    return entries[:MAX_PARTS]


def _reason(entry: Any, known: Iterable[str], kind: str) -> str:
    if entry["type"] == _UNKNOWN:
        return unknown_name(str(entry["loc"][-1]), known, kind)
    return _REASONS.get(entry["type"]) or str(entry["msg"])


def unknown_name(name: str, known: Iterable[str], kind: str) -> str:
    """Return why a name is refused, and the name that was probably meant."""
    close = get_close_matches(name[:_MAX_NAME], known, n=1)
    meant = f": did you mean {close[0]!r}?" if close else ""
    return f"there is no {kind} {name[:_MAX_NAME]!r}{meant}"


def _steps(entry: Any, names: frozenset[str]) -> Iterator[str | int]:
    """Yield the steps of a place, without branches of unions and without unknown members."""
    place = entry["loc"][:-1] if entry["type"] == _UNKNOWN else entry["loc"]
    return (step for step in place if isinstance(step, int) or step in names)


def _names(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of all members in the schema of a model."""
    schema = model.model_json_schema()
    objects = (schema, *schema.get("$defs", {}).values())
    return frozenset(name for each in objects for name in each.get("properties", ()))
