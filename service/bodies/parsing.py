"""Foreign text as values: each parser is bounded, and knows one thing that a client writes."""

import base64
import binascii
import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams

from mmhash.view import ITEM_SIZE
from mmhash_service.api.problems import Problem

Model = TypeVar("Model", bound=BaseModel)

MAX_DIMS = 32

# 19 digits hold every number below 2**63, and keep int() far from its slow end.
_NATURAL = re.compile(r"[0-9]{1,19}", re.ASCII)
_MAX_SHAPE = MAX_DIMS * 20

# The names of RFC 6838, and whatever parameters follow.
_MEDIA_TYPE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126})[ \t]*(;.*)?",
    re.ASCII | re.IGNORECASE,
)

# A weight of RFC 9110.
_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?", re.ASCII)

# How much base64 is decoded at a time: 1 ms, after which the event loop may have the GIL.
_BASE64_STEP = 1 << 20


def parse_natural(text: str) -> int | None:
    """The number that `text` spells in plain digits, or None: it spells none below 2**63."""
    if not _NATURAL.fullmatch(text):
        return None
    number = int(text)
    return number if number < 1 << 63 else None


def parse_shape(text: str) -> tuple[int, ...]:
    """The shape that `1,3,224,224` spells; the empty text has no dimensions."""
    if not text:
        return ()
    # The length first: what is too long is not even split.
    numbers = text.split(",") if len(text) <= _MAX_SHAPE else []
    shape = [parse_natural(number) for number in numbers]
    if not 1 <= len(shape) <= MAX_DIMS or None in shape:
        raise Problem("invalid-shape")
    return tuple(number for number in shape if number is not None)


def parse_dtype(text: str) -> str:
    """`text`, if it names a dtype that has a key."""
    if text not in ITEM_SIZE:
        raise Problem("unknown-dtype")
    return text


def parse_quality(text: str, name: str) -> float:
    """How much an Accept header wants the media type of that very name; 0 if it does not say."""
    for entry in text.lower().split(","):
        found, *parameters = (piece.strip() for piece in entry.split(";"))
        if found == name:
            weight = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
            return float(weight) if _QUALITY.fullmatch(weight) else 0.0
    return 0.0


def parse_base64(text: str) -> bytearray:
    """The bytes that plain base64, padded, spells: for a worker."""
    content = bytearray()
    try:
        for at in range(0, len(text), _BASE64_STEP):
            content += base64.b64decode(text[at : at + _BASE64_STEP], validate=True)
            if len(content) % 3 and at + _BASE64_STEP < len(text):
                raise Problem("invalid-base64")  # padding in the middle
    except (binascii.Error, ValueError) as error:
        raise Problem("invalid-base64") from error
    return content


def parse_media_type(text: str) -> tuple[str, str]:
    """The two names of a Content-Type, in lower case and without its parameters."""
    match = _MEDIA_TYPE.fullmatch(text)
    if match is None:
        raise Problem("unsupported-media-type")
    main, _, sub = match["name"].lower().partition("/")
    return main, sub


def parse_query(given: QueryParams, model: type[Model]) -> Model:
    """A call's query as the model has it."""
    if len(given) != len(given.multi_items()):  # another reader may take the other one
        raise Problem("invalid-query")
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise Problem("invalid-query") from error
