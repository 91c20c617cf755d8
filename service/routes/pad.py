"""`POST /pad`: token ids with SGLang's pad values where its items stand."""

from fastapi import APIRouter, Request, Response

from mmhash.engines import sglang
from mmhash.errors import InputError
from mmhash_service.api.openapi import json_body
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import PadAnswer, PadBody, Span
from mmhash_service.bodies.json_body import parse_json, read_json
from mmhash_service.engines import mm_hash_of, resolve_release

router = APIRouter()


@router.post("/pad", openapi_extra=json_body(PadBody), response_model=PadAnswer)
async def pad(request: Request) -> Response:
    """Fill each span of placeholders as SGLang's prefix cache has it."""
    state = request.app.state
    with state.limits.admit() as admission:
        text = await read_json(request, state.settings, admission)
        return Response(await state.work.run(_pad, text), media_type="application/json")


def _pad(text: bytes) -> str:
    body = parse_json(text, PadBody)
    version = resolve_release(body.engine, body.version)
    return PadAnswer(input_ids=padded(body.input_ids, body.spans, version)).model_dump_json()


def padded(ids: list[int], spans: list[Span], version: str) -> list[int]:
    """`ids` with SGLang's pad values in each span."""
    # A key stands for its 64-bit hash here as in the engine.
    places = [(span.start, span.end, int(mm_hash_of(span), 16)) for span in spans]
    try:
        return sglang.pad_input_ids(ids, places, version=version)
    except InputError as error:
        raise Problem("refused-by-engine") from error
