"""Processing options of a request whose members are raw JSON."""

from collections.abc import Iterable
from typing import Any

from mmhash.engines import options
from mmhash.engines.options import parse_options
from mmhash.errors import InputValueError
from mmhash_service.annotate.raw_json import Object
from mmhash_service.api.problems import Problem


def read_options(body: Object, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of those members that the request has, numbers as they are spelled."""
    try:
        return {name: parse_options(bytes(body[name])) for name in names if name in body}
    except RecursionError as error:
        raise Problem("invalid-json") from error


def options_text(values: dict[str, Any]) -> str:
    """Return the canonical JSON of those options that are not empty; "" if all are."""
    try:
        return options.options_text(values)
    except InputValueError as error:
        raise Problem("invalid-json") from error
