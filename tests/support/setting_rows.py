"""Rows of the pages' tables of settings."""

import json

from pydantic.fields import FieldInfo


def row_of(name: str, prefix: str, field: FieldInfo) -> str:
    """Return the row of a setting, with its default in the form that the variable needs."""
    default = "" if field.is_required() else _shown(field.default)
    return f"| `{name}` | `{prefix}{name.upper()}` | {default} | {field.description} |"


def _shown(default: object) -> str:
    if default is None:
        return "unset"
    if isinstance(default, str):
        return f"`{default}`"
    return f"`{json.dumps([*default] if isinstance(default, frozenset) else default)}`"
