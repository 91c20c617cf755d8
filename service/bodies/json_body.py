"""JSON bodies: read under limits, and checked by a model."""

from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from mmhash_service.api.problems import Problem
from mmhash_service.bodies.parsing import parse_media_type
from mmhash_service.runtime.limits import Admission, read_body
from mmhash_service.settings import Settings

# Long strings cost next to nothing, numbers and names do: with so many the parser holds the GIL,
# and with it the event loop, for 5 ms.
MAX_VALUES = 150_000

# The body, its text in the model, and what the text holds.
_HELD_TIMES = 3

Model = TypeVar("Model", bound=BaseModel)


async def read_json(request: Request, settings: Settings, admission: Admission) -> bytes:
    """The whole body of a call that takes JSON alone."""
    if parse_media_type(request.headers.get("content-type", "")) != ("application", "json"):
        raise Problem("not-json")
    reader = JsonText(settings, admission)
    await read_body(request, settings.max_json_bytes, reader.take, settings.stall_timeout_s)
    return bytes(reader.text)


class JsonText:
    """A JSON body that is held until its last piece."""

    def __init__(self, settings: Settings, admission: Admission) -> None:
        self._max_bytes = settings.max_json_bytes
        self._admission = admission
        self.text = bytearray()

    def take(self, piece: bytes | memoryview, /) -> None:
        """Keep the next piece."""
        if len(self.text) + len(piece) > self._max_bytes:
            raise Problem("json-too-large")
        self._admission.hold(_HELD_TIMES * len(piece))
        self.text += piece


def refuse_many_values(text: bytes | bytearray) -> None:
    """Refuse a text that may have more values than a parser should meet at a time."""
    if text.count(b",") + text.count(b":") + text.count(b"[") > MAX_VALUES:
        raise Problem("json-too-large")


def parse_json(text: bytes | bytearray, model: type[Model]) -> Model:
    """The text as the model has it: for a worker."""
    refuse_many_values(text)
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise Problem("invalid-json") from error
