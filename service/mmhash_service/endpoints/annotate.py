"""`POST /annotate`: inserts the hashes of a request's media."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from mmhash.requests import EngineRequest
from mmhash_service.bodies.json_body import read_json
from mmhash_service.bodies.parsing import parse_query
from mmhash_service.bodies.types import EngineName, RequestPath
from mmhash_service.endpoints import examples
from mmhash_service.endpoints.long_response import LongResponse
from mmhash_service.endpoints.openapi import json_body, query_parameters
from mmhash_service.items.context import TENANT_PARAMETER, RequestContext, build_context
from mmhash_service.items.schema import HashQuery, Item, Query
from mmhash_service.plan.annotate import (
    AnnotatedItem,
    needs_of,
    places_to_fill,
    put_hashes,
    read_to_annotate,
)
from mmhash_service.plan.media import resolve
from mmhash_service.plan.request import open_document
from mmhash_service.resources import Resources
from mmhash_service.telemetry import metrics

router = APIRouter()


class AnnotateQuery(Query):
    """The query of `POST /annotate`."""

    engine: EngineName = Field(
        description="The engine that gets the request, and its release unless it is the newest."
    )
    path: RequestPath = None

    def of_items(self) -> HashQuery:
        """Return the query of `POST /hash` that gives the same keys."""
        return HashQuery(
            algorithm=self.algorithm,
            of=self.of,
            sign=self.sign,
            engines=self.engine,
        )


class AnnotateAnswer(BaseModel):
    """The request with hashes, and the item of each hash in the same order."""

    request: dict[str, Any]
    items: list[Item]


_OPENAPI = {
    "parameters": [*query_parameters(AnnotateQuery), TENANT_PARAMETER],
    **json_body(None, examples.ANNOTATE),
}


@router.post("/annotate", openapi_extra=_OPENAPI, response_model=AnnotateAnswer)
async def annotate_request(request: Request) -> Response:
    """Insert the hash of each image, video and audio clip for which the engine takes one."""
    query = parse_query(request.query_params, AnnotateQuery)
    resources = Resources.of(request)
    with resources.limits.admit() as admission:
        context = build_context(resources, request, query.of_items(), admission)
        work = resources.work
        text = await read_json(request, resources.settings, admission)
        admission.hold(2 * len(text))  # the request as text, and the response around it
        document = await work.run(open_document, text, query.path)
        annotated = await work.run(read_to_annotate, context.engines[0], document)
        places = places_to_fill(annotated)
        needs = needs_of(annotated)
        media = await resolve(context, [place.source for place in places], needs)
        model = resources.models.get(document.model)
        items = await work.run(put_hashes, context, annotated, places, media, model)
        for item in items:
            metrics.ITEMS.labels(item.item.kind).inc()
        payload = await work.run(_join, context, annotated, items)
        return LongResponse(payload, resources.limits)


def _join(context: RequestContext, annotated: EngineRequest, items: list[AnnotatedItem]) -> bytes:
    payload = msgspec.json.encode([context.describe(*item) for item in items])
    return b'{"request":%b,"items":%b}' % (annotated.write(), payload)
