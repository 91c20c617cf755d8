"""`POST /blocks`: what an engine's prefix cache calls the blocks of a prompt."""

from fastapi import APIRouter, Request, Response

from mmhash.engines import dynamo, sglang, vllm
from mmhash.errors import InputError
from mmhash_service.api.openapi import json_body
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import BlocksAnswer, BlocksBody, Span
from mmhash_service.bodies.json_body import parse_json, read_json
from mmhash_service.engines import key_of, mm_hash_of, resolve_release
from mmhash_service.routes.pad import padded

router = APIRouter()


@router.post("/blocks", openapi_extra=json_body(BlocksBody), response_model=BlocksAnswer)
async def blocks(request: Request) -> Response:
    """Name each block of the prompt, bound to those before it, as the engine does."""
    state = request.app.state
    with state.limits.admit() as admission:
        text = await read_json(request, state.settings, admission)
        return Response(await state.work.run(_blocks, text), media_type="application/json")


def _blocks(text: bytes) -> str:
    body = parse_json(text, BlocksBody)
    version = resolve_release(body.engine, body.version)
    keys_of = {"sglang": _sglang, "vllm": _vllm, "dynamo": _dynamo}[body.engine]
    try:
        return BlocksAnswer(blocks=keys_of(body, version)).model_dump_json()
    except InputError as error:
        raise Problem("refused-by-engine") from error


def _sglang(body: BlocksBody, version: str) -> list[str]:
    return sglang.page_keys(
        padded(body.input_ids, body.spans, version),
        body.block_size,
        extra_key=body.extra_key,
        cache_salt=body.cache_salt,
        version=version,
    )


def _vllm(body: BlocksBody, version: str) -> list[str]:
    _refuse_extra_key(body)
    keys = vllm.block_keys(
        body.input_ids,
        body.block_size,
        items=[_vllm_span(span) for span in sorted(body.spans, key=lambda span: span.start)],
        cache_salt=body.cache_salt,
        version=version,
    )
    return [key.hex() for key in keys]


def _vllm_span(span: Span) -> vllm.Span:
    key = key_of(span)
    if key is None:  # vLLM goes by the whole key
        raise Problem("invalid-span")
    return vllm.Span(vllm.uuid(key), span.start, span.end - span.start)


def _dynamo(body: BlocksBody, version: str) -> list[str]:
    _refuse_extra_key(body)
    size = body.block_size
    items: list[list[str]] = [[] for _ in range(len(body.input_ids) // size)]
    for span in body.spans:
        for block in items[span.start // size : -(-span.end // size)]:
            block.append(mm_hash_of(span))
    keys = dynamo.block_keys(
        body.input_ids, size, items=items, cache_salt=body.cache_salt, version=version
    )
    return dynamo.sequence_keys(keys, version=version)


def _refuse_extra_key(body: BlocksBody) -> None:
    if body.extra_key is not None:  # SGLang alone has one
        raise Problem("refused-by-engine")
