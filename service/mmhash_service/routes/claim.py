"""`POST /claim`: leases for engines' encoders, and a registry of their results."""

from fastapi import APIRouter, Request, Response

from mmhash_service.api import examples
from mmhash_service.api.openapi import json_body
from mmhash_service.api.schemas.claims import ClaimAnswer, ClaimBody, FoundClaims
from mmhash_service.bodies.json_body import parse_json, read_json
from mmhash_service.tenants import TENANT_PARAMETER, resolve_tenant

router = APIRouter()

_OPENAPI = {"parameters": [TENANT_PARAMETER], **json_body(ClaimBody, examples.CLAIM)}


@router.post("/claim", openapi_extra=_OPENAPI, response_model=ClaimAnswer | FoundClaims)
async def claim(request: Request) -> Response:
    """Acquire, renew, complete, give up, await or find claims of the tenant."""
    state = request.app.state
    with state.limits.admit() as admission:
        tenant = resolve_tenant(request, state.settings)
        text = await read_json(request, state.settings, admission)
        body = await state.work.run(parse_json, text, ClaimBody)
        answer = await state.claims.answer(tenant.secret if tenant else b"", body)
        payload = answer.model_dump_json(exclude_none=True)
        return Response(payload, media_type="application/json")
