"""`POST /plan`: the token ids, spans and block keys of a prompt, before an engine sees it."""

import msgspec
from fastapi import APIRouter, Request, Response

from mmhash_service.bodies.json_body import read_json
from mmhash_service.bodies.parsing import parse_query
from mmhash_service.endpoints import examples
from mmhash_service.endpoints.long_response import LongResponse
from mmhash_service.endpoints.openapi import json_body, query_parameters
from mmhash_service.items.context import TENANT_PARAMETER, build_context
from mmhash_service.plan.request import open_document, plan_request
from mmhash_service.plan.schema import PlanAnswer, PlanQuery
from mmhash_service.resources import Resources
from mmhash_service.telemetry import metrics

router = APIRouter()

_OPENAPI = {
    "parameters": [*query_parameters(PlanQuery), TENANT_PARAMETER],
    **json_body(None, examples.ANNOTATE),
}


@router.post("/plan", openapi_extra=_OPENAPI, response_model=PlanAnswer)
async def plan(request: Request) -> Response:
    """Return a request's prompt as the engine will see it, with the keys of its blocks."""
    query = parse_query(request.query_params, PlanQuery)
    resources = Resources.of(request)
    with resources.limits.admit() as admission:
        context = build_context(resources, request, query.of_items(), admission)
        model = resources.models.find(query.model)
        text = await read_json(request, resources.settings, admission)
        admission.hold(3 * len(text))  # its media, and the response that repeats the request
        document = await resources.work.run(open_document, text, query.path)
        answer = await plan_request(context, model, query, document)
        for item in answer["items"]:
            metrics.ITEMS.labels(item["kind"]).inc()
        payload = await resources.work.run(msgspec.json.encode, answer)
        return LongResponse(payload, resources.limits)
