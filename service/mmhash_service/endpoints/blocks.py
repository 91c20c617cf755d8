"""`POST /blocks`: the names of a prompt's blocks in an engine's cache and in its KV events."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from mmhash.engines.engine import Prompt
from mmhash.errors import InputError, LimitError
from mmhash_service.bodies.json_body import parse_json, read_json
from mmhash_service.bodies.types import BlockSize, EngineName, RequestModel, Text, Token
from mmhash_service.endpoints import examples
from mmhash_service.endpoints.long_response import LongResponse
from mmhash_service.endpoints.openapi import json_body
from mmhash_service.endpoints.spans import Span, item_spans
from mmhash_service.items.context import Tenant, resolve_tenant
from mmhash_service.items.hashed import find_engine, require
from mmhash_service.plan.schema import ENGINE_NAME, BlockFields
from mmhash_service.problems.problem import Problem
from mmhash_service.resources import Resources

router = APIRouter()


class BlocksBody(RequestModel, BlockFields):
    """The body of `POST /blocks`."""

    engine: EngineName = Field(description=ENGINE_NAME)
    input_ids: Annotated[list[Token], Field(fail_fast=True)]
    block_size: BlockSize = Field(
        description="The number of tokens that the engine hashes at once."
    )
    spans: list[Span] = Field(default=[], fail_fast=True)
    cache_salt: Text | None = None
    extra_key: Text | None = None


class BlocksAnswer(BaseModel):
    """The key of each block in the engine's cache, in hex, and its id in KV events."""

    blocks: list[str]
    event_ids: list[int]


@router.post(
    "/blocks", openapi_extra=json_body(BlocksBody, examples.BLOCKS), response_model=BlocksAnswer
)
async def blocks(request: Request) -> Response:
    """Return the key of each block of a prompt. A key depends on all blocks up to its own."""
    resources = Resources.of(request)
    settings = resources.settings
    tenant = resolve_tenant(request, settings)
    with resources.limits.admit() as admission:
        text = await read_json(request, settings, admission)
        payload = await resources.prompts.for_size(len(text)).run(_blocks, text, tenant)
        return LongResponse(payload, resources.limits)


def _blocks(text: bytes, tenant: Tenant | None) -> str:
    body = parse_json(text, BlocksBody)
    requested = find_engine(body.engine)
    require(requested.engine, "blocks")
    prompt = Prompt(
        body.input_ids,
        body.block_size,
        item_spans(body.spans),
        cache_salt=body.cache_salt,
        extra_key=body.extra_key,
        options=body.block_options,
        tenant=tenant.secret if tenant else None,
    )
    try:
        names = requested.engine.prompt_blocks(prompt, requested.version)
    except (InputError, LimitError) as error:
        raise Problem("refused-by-engine", reason=str(error)) from error
    return BlocksAnswer(blocks=names.blocks, event_ids=names.event_ids).model_dump_json()
