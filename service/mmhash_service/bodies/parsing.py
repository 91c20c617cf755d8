"""Parsers of the text that clients send, each with bounded work."""

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

# A type and subtype of RFC 6838, and any parameters.
_MEDIA_TYPE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126})[ \t]*(;.*)?",
    re.ASCII | re.IGNORECASE,
)


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the shape in a text such as `1,3,224,224`; the empty text means a scalar."""
    if not text:
        return ()
    # In a longer text, the last part contains commas and so is not a number.
    shape = [parse_natural(number) for number in text.split(",", MAX_DIMS)]
    if len(shape) > MAX_DIMS or None in shape:
        reason = f"{shown(text)} is not a shape: give at most {MAX_DIMS} integers, as 1,3,224,224"
        raise Problem("invalid-tensor", reason=reason)
    return tuple(number for number in shape if number is not None)


def parse_dtype(text: str) -> str:
    """Return `text` if it is the name of a supported dtype."""
    if text not in ITEM_SIZE:
        raise Problem("invalid-tensor", reason=unknown_dtype(text))
    return text


def check_length(dtype: str, shape: Sequence[int], nbytes: int) -> None:
    """Refuse content whose length does not match the tensor."""
    expected = prod(shape) * ITEM_SIZE[dtype]
    if nbytes != expected:
        reason = f"the content has {nbytes} bytes; the dtype and shape need {expected}"
        raise Problem("invalid-tensor", reason=reason)


@contextmanager
def refusing_damage() -> Iterator[None]:
    """Raise a Problem for base64 or a data: URL that cannot be decoded."""
    try:
        yield
    except (Base64Error, DataUrlError) as error:
        name = "invalid-base64" if isinstance(error, Base64Error) else "invalid-url"
        raise Problem(name, reason=str(error)) from error


def parse_media_type(text: str) -> tuple[str, str] | None:
    """Return the type and subtype of a Content-Type, in lower case and without parameters."""
    match = _MEDIA_TYPE.fullmatch(text)
    if match is None:
        return None
    main, _, sub = match["name"].lower().partition("/")
    return main, sub


def unsupported_type(text: str, expected: str) -> Problem:
    """Return the problem to raise for a Content-Type."""
    reason = f"the Content-Type is {text[:100]!r}, which is not supported here: send {expected}"
    return Problem("unsupported-media-type", reason=reason)


def parse_query(parameters: QueryParams, model: type[Model]) -> Model:
    """Validate the query of a request; refuse repeated parameters."""
    # Of two values, another parser, such as a gateway's, may use the other.
    if len(parameters) != len(parameters.multi_items()):
        seen = [name for name, _ in parameters.multi_items()]
        repeated = [name for name in model.model_fields if seen.count(name) > 1]
        parts = [InvalidPart("is repeated", parameter=name) for name in repeated]
        raise Problem("invalid-query", parts or [InvalidPart("a parameter is repeated")])
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        raise Problem("invalid-query", invalid_parameters(error, model)) from error


def count_strings(text: bytes | bytearray) -> int:
    """Return the number of strings in valid JSON: half the number of unescaped quotes."""
    quotes = text.count(b'"')
    if b"\\" in text:
        quotes -= text.replace(rb"\\", b"").count(rb"\"")
    return quotes // 2
