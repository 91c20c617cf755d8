"""JSON bodies: read within limits, and validated by a model."""

from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from mmhash_service.bodies.parsing import parse_media_type, unsupported_type
from mmhash_service.bodies.reading import read_body, refuse_many_values, too_large
from mmhash_service.bodies.validation import invalid_members
from mmhash_service.limits.capacity import Admission
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings

# A body is held three times: its text, the strings parsed from it, and the bytes that they encode.
_COPIES = 3

Model = TypeVar("Model", bound=BaseModel)


async def read_json(request: Request, settings: Settings, admission: Admission) -> bytes:
    """Read the whole body of a request, which must have the Content-Type of JSON."""
    content_type = request.headers.get("content-type", "")
    if parse_media_type(content_type) != ("application", "json"):
        raise unsupported_type(content_type, "application/json")
    body = JsonText(settings, admission)
    limit, timeout_s = settings.max_json_bytes, settings.timeout_s
    await read_body(request, limit, body.take, timeout_s)
    return bytes(body.text)


class JsonText:
    """The text of a JSON body, collected piece by piece."""

    def __init__(self, settings: Settings, admission: Admission) -> None:
        self._max_bytes = settings.max_json_bytes
        self._admission = admission
        self.text = bytearray()

    def take(self, piece: bytes | memoryview, /) -> None:
        """Append the next piece."""
        if len(self.text) + len(piece) > self._max_bytes:
            raise too_large(self._max_bytes)
        self._admission.hold(_COPIES * len(piece))
        self.text += piece


def parse_json(text: bytes | bytearray, model: type[Model]) -> Model:
    """Parse and validate JSON text. Run this in a thread."""
    refuse_many_values(text)
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise Problem("invalid-json", invalid_members(error, model)) from error
