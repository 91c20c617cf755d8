"""Engines: the fields, hashes and block keys that each engine derives from a key or an item.

Only the modules of this package know engines; everything else reads `registry.ENGINES`.
"""

from mmhash.engines.engine import BlockOptions, NoFieldError, RequestFields, Span
from mmhash.engines.registry import (
    find,
    known,
    names,
    pad_values,
    parse,
    request_fields,
    split_names,
)

__all__ = [
    "BlockOptions",
    "NoFieldError",
    "RequestFields",
    "Span",
    "find",
    "known",
    "names",
    "pad_values",
    "parse",
    "request_fields",
    "split_names",
]


def __dir__() -> list[str]:
    return [*__all__, *names()]
