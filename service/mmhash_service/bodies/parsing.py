"""Parses text from clients, with a bound on the work."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams

from mmhash.dtypes import ITEM_SIZE, unknown_dtype
from mmhash.requests.media_source import Base64Error, DataUrlError
from mmhash_service.bodies.validation import invalid_parameters
from mmhash_service.limits.text import parse_natural
from mmhash_service.problems.problem import InvalidPart, Problem, shown

Model = TypeVar("Model", bound=BaseModel)

MAX_DIMS = 32

# A type and a subtype (RFC 6838), then any parameters.
_MEDIA_TYPE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126})[ \t]*(;.*)?",
    re.ASCII | re.IGNORECASE,
)


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the shape in a text such as `1,3,224,224`. An empty text is a scalar's."""
    if not text:
        return ()
    # The last part of a longer text contains commas, so it is no number.
    shape = [parse_natural(number) for number in text.split(",", MAX_DIMS)]
    if len(shape) > MAX_DIMS or None in shape:
        reason = f"{shown(text)} is not a shape: give up to {MAX_DIMS} integers, as in 1,3,224,224"
        raise Problem("invalid-tensor", reason=reason)
    return tuple(number for number in shape if number is not None)


def parse_dtype(text: str) -> str:
    """Return `text` if it names a supported dtype."""
    if text not in ITEM_SIZE:
        raise Problem("invalid-tensor", reason=unknown_dtype(text))
    return text


def check_length(dtype: str, shape: Sequence[int], nbytes: int) -> None:
    """Refuse content whose length does not match the tensor."""
    expected = prod(shape) * ITEM_SIZE[dtype]
    if nbytes != expected:
        reason = f"the content has {nbytes} bytes, and dtype and shape need {expected}"
        raise Problem("invalid-tensor", reason=reason)


@contextmanager
def refusing_damage() -> Iterator[None]:
    """Turn the errors of base64 and data: URLs into problems."""
    try:
        yield
    except (Base64Error, DataUrlError) as error:
        name = "invalid-base64" if isinstance(error, Base64Error) else "invalid-url"
        raise Problem(name, reason=str(error)) from error


def parse_media_type(text: str) -> tuple[str, str] | None:
    """Return type and subtype of a Content-Type in lower case, or None if it is malformed."""
    match = _MEDIA_TYPE.fullmatch(text)
    if match is None:
        return None
    main, _, sub = match["name"].lower().partition("/")
    return main, sub


def unsupported_type(text: str, expected: str) -> Problem:
    """Return the problem of an unexpected Content-Type."""
    reason = f"the Content-Type is {text[:100]!r}, and this takes {expected}"
    return Problem("unsupported-media-type", reason=reason)


def parse_query(parameters: QueryParams, model: type[Model]) -> Model:
    """Validate the query of a request, and refuse repeated parameters."""
    # A proxy's parser may use the first of two values, and ours the second.
    if len(parameters) != len(parameters.multi_items()):
        seen = [name for name, _ in parameters.multi_items()]
        repeated = [name for name in model.model_fields if seen.count(name) > 1]
        parts = [InvalidPart("is repeated", parameter=name) for name in repeated]
        raise Problem("invalid-query", parts or [InvalidPart("a parameter is repeated")])
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        raise Problem("invalid-query", invalid_parameters(error, model)) from error
