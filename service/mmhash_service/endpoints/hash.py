"""`POST /hash`: the digest and the key of each item in the body."""

from time import perf_counter

import msgspec
from fastapi import APIRouter, Request, Response

from mmhash_service.bodies.parsing import parse_query
from mmhash_service.bodies.reading import declared_length, read_body
from mmhash_service.endpoints import examples
from mmhash_service.endpoints.body_types import BODY_TYPES, find_body_type, open_body
from mmhash_service.endpoints.long_response import LongResponse
from mmhash_service.endpoints.openapi import query_parameters
from mmhash_service.items.context import TENANT_PARAMETER, RequestContext, build_context
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.schema import HashAnswer, HashQuery
from mmhash_service.resources import Resources
from mmhash_service.telemetry import metrics, tracing

router = APIRouter()

_NO_QUERY = HashQuery()

# About how long it takes to describe an item, or to name it for an engine.
_NAME_US = 10

# The handler parses query and body itself, so FastAPI does not know them.
_OPENAPI = {
    "parameters": [*query_parameters(HashQuery), TENANT_PARAMETER],
    "requestBody": {
        "required": True,
        "content": {
            name: {"schema": body_type.schema}
            | ({"examples": examples.HASH} if name == "application/json" else {})
            for name, body_type in BODY_TYPES.items()
        },
    },
}


@router.post("/hash", openapi_extra=_OPENAPI, response_model=HashAnswer)
async def hash_body(request: Request) -> Response:
    """Return the key of each item in the body."""
    start = perf_counter()
    query = _parse_query(request)
    content_type = request.headers.get("content-type", "")
    body_type = find_body_type(content_type)
    length = declared_length(request)
    resources = Resources.of(request)
    settings = resources.settings
    with resources.limits.admit() as admission:
        context = build_context(resources, request, query, admission)
        reader = open_body(context, body_type, content_type, query, length)
        await read_body(request, settings.max_body_bytes, reader.take, settings.timeout_s)
        with tracing.span("hash"):
            items = await reader.finish()
        for item in items:
            metrics.ITEMS.labels(item.kind).inc()
        cost_us = _NAME_US * len(items) * (1 + len(context.engines))
        payload = await resources.work.run_sized(cost_us, _describe, context, items, start)
    return LongResponse(payload, resources.limits)


def _describe(context: RequestContext, items: list[HashedItem], start: float) -> bytes:
    """Return the response as JSON."""
    described = [context.describe(item) for item in items]
    elapsed_ms = round(1000 * (perf_counter() - start), 3)
    return msgspec.json.encode({"items": described, "elapsed_ms": elapsed_ms})


def _parse_query(request: Request) -> HashQuery:
    """Parse the query. FastAPI would take as long as the rest of a small request."""
    if not request.scope["query_string"]:
        return _NO_QUERY
    return parse_query(request.query_params, HashQuery)
