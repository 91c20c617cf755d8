"""`POST /blocks`: the keys of a prompt's blocks in an engine's prefix cache."""

from fastapi import APIRouter, Request, Response

from mmhash.engines.engine import ItemSpanError, Prompt
from mmhash.errors import InputError
from mmhash_service.api.openapi import json_body
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import BlocksAnswer, BlocksBody
from mmhash_service.bodies.json_body import parse_json, read_json
from mmhash_service.engines import find_engine, item_span

router = APIRouter()


@router.post("/blocks", openapi_extra=json_body(BlocksBody), response_model=BlocksAnswer)
async def blocks(request: Request) -> Response:
    """Return the key of each block of the prompt, bound to the blocks before it."""
    state = request.app.state
    with state.limits.admit() as admission:
        text = await read_json(request, state.settings, admission)
        return Response(await state.work.run(_blocks, text), media_type="application/json")


def _blocks(text: bytes) -> str:
    body = parse_json(text, BlocksBody)
    engine, version = find_engine(body.engine, body.version)
    prompt = Prompt(
        body.input_ids,
        body.block_size,
        [item_span(span) for span in body.spans],
        body.cache_salt,
        body.extra_key,
    )
    if engine.blocks is None:
        raise Problem("refused-by-engine")
    try:
        keys = engine.blocks(prompt, version)
    except ItemSpanError as error:
        raise Problem("invalid-span") from error
    except InputError as error:
        raise Problem("refused-by-engine") from error
    return BlocksAnswer(blocks=keys).model_dump_json()
