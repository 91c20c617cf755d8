"""JSON bodies: read under limits, and checked by a model."""

from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from mmhash_service.call import Call
from mmhash_service.items import hash_items
from mmhash_service.limits import Admission, read_body
from mmhash_service.parsing import parse_media_type
from mmhash_service.problems import Problem
from mmhash_service.schemas import HashBody, Item
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


class JsonReader(JsonText):
    """The JSON body of `POST /hash`: held until its last piece, then its items are hashed."""

    def __init__(self, call: Call) -> None:
        super().__init__(call.settings, call.admission)
        self._call = call

    async def finish(self) -> list[Item]:
        """The items; a bundle has several."""
        body = await self._call.work.run(parse_json, self.text, HashBody)
        found = await hash_items(self._call, body.items, body.proof)
        return [item for items in found for item in items]


def parse_json(text: bytes | bytearray, model: type[Model]) -> Model:
    """The text as the model has it: for a worker."""
    if text.count(b",") + text.count(b":") + text.count(b"[") > MAX_VALUES:
        raise Problem("json-too-large")
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise Problem("invalid-json") from error
