"""`POST /pad`: replaces placeholders with an engine's pad values."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from mmhash.errors import InputError, LimitError
from mmhash_service.bodies.json_body import parse_json, read_json
from mmhash_service.bodies.types import EngineName, RequestModel, Token
from mmhash_service.endpoints import examples
from mmhash_service.endpoints.long_response import LongResponse
from mmhash_service.endpoints.openapi import json_body
from mmhash_service.endpoints.spans import Span, item_spans
from mmhash_service.items.hashed import find_engine, require
from mmhash_service.plan.schema import ENGINE_NAME
from mmhash_service.problems.problem import InvalidPart, Problem
from mmhash_service.resources import Resources

router = APIRouter()


class PadBody(RequestModel):
    """The body of `POST /pad`."""

    engine: EngineName = Field(description=ENGINE_NAME)
    input_ids: Annotated[list[Token], Field(fail_fast=True)]
    spans: Annotated[list[Span], Field(fail_fast=True)]


class PadAnswer(BaseModel):
    """The token ids with the pad values in each span."""

    input_ids: list[int]


@router.post("/pad", openapi_extra=json_body(PadBody, examples.PAD), response_model=PadAnswer)
async def pad(request: Request) -> Response:
    """Fill each span of placeholders with the values that the engine's prefix cache uses."""
    resources = Resources.of(request)
    with resources.limits.admit() as admission:
        text = await read_json(request, resources.settings, admission)
        payload = await resources.work.run(_pad, text)
        return LongResponse(payload, resources.limits)


def _pad(text: bytes) -> str:
    body = parse_json(text, PadBody)
    requested = find_engine(body.engine)
    pad_ids = require(requested.engine, "pad")
    length = len(body.input_ids)
    for number, span in enumerate(body.spans):
        if span.end > length:
            reason = f"{span.end} is beyond the {length} input_ids: end is exclusive"
            raise Problem(
                "refused-by-engine", [InvalidPart(reason, pointer=f"/spans/{number}/end")]
            )
    try:
        padded = pad_ids(body.input_ids, item_spans(body.spans), requested.version)
    except (InputError, LimitError) as error:
        raise Problem("refused-by-engine", reason=str(error)) from error
    return PadAnswer(input_ids=padded).model_dump_json()
