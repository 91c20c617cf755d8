"""`POST /annotate`: a request for an engine, with the hashes of its media."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from mmhash_service.annotate.request import AnnotatedItem, annotate
from mmhash_service.api import examples
from mmhash_service.api.openapi import json_body, query_parameters
from mmhash_service.api.schemas.prompts import AnnotateAnswer, AnnotateQuery, PlannedPrompt
from mmhash_service.bodies.json_body import read_json
from mmhash_service.bodies.parsing import parse_quality, parse_query
from mmhash_service.items.context import RequestContext, build_context
from mmhash_service.plan.request import plan_request
from mmhash_service.resources import Resources
from mmhash_service.runtime import metrics
from mmhash_service.runtime.long_response import LongResponse
from mmhash_service.tenants import TENANT_PARAMETER

router = APIRouter()

JSON = "application/json"

# Only the request, for clients that forward it.
BARE = "application/vnd.mmhash.request+json"

_OPENAPI = {
    "parameters": [*query_parameters(AnnotateQuery), TENANT_PARAMETER],
    **json_body(None, examples.ANNOTATE),
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {BARE: {"schema": {"type": "object"}}}}
}


@router.post(
    "/annotate", openapi_extra=_OPENAPI, response_model=AnnotateAnswer, responses=_RESPONSES
)
async def annotate_request(request: Request) -> Response:
    """Add a hash to each image, video and audio of a request for which its engine takes one."""
    query = parse_query(request.query_params, AnnotateQuery)
    resources = Resources.of(request)
    with resources.limits.admit() as admission:
        context = build_context(request, query.of_items(), admission)
        model = None if query.plan is None else resources.models.find(query.plan)
        text = await read_json(request, resources.settings, admission)
        annotated, items = await annotate(
            context, text, lambda name: model or resources.models.get(name)
        )
        for item in items:
            metrics.ITEMS.labels(item.item.kind).inc()
        accept = ",".join(request.headers.getlist("accept"))
        if 0 < parse_quality(accept, BARE) >= parse_quality(accept, JSON):
            return LongResponse(annotated, resources.limits, media_type=BARE)
        plan = None
        if query.plan is not None and model is not None:
            plan = await plan_request(context, model, query.of_plan(query.plan), text)
        payload = await resources.work.run(_join, context, annotated, items, plan)
        return LongResponse(payload, resources.limits)


def _join(
    context: RequestContext,
    annotated: bytes,
    items: list[AnnotatedItem],
    plan: dict[str, Any] | None,
) -> bytes:
    payload = msgspec.json.encode([context.describe(*item) for item in items])
    recipe = context.engines[0].recipe
    end = b"" if recipe is None else b',"recipe":"%b"' % recipe.encode()
    if plan is not None:
        prompt = {name: plan[name] for name in PlannedPrompt.model_fields}
        end += b',"plan":%b' % msgspec.json.encode(prompt)
    return b'{"request":%b,"items":%b%b}' % (annotated, payload, end)
