"""`POST /hash`: the digest and the key of each item in the body."""

from math import prod
from time import perf_counter

from fastapi import APIRouter, Request, Response

from mmhash.view import ITEM_SIZE
from mmhash_service.api.openapi import json_body, query_parameters
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import HashAnswer, HashBody, HashQuery
from mmhash_service.bodies.multipart import MultipartReader
from mmhash_service.bodies.parsing import parse_dtype, parse_media_type, parse_query, parse_shape
from mmhash_service.bodies.readers import PixelsReader, Reader, StreamReader
from mmhash_service.bodies.safetensors import SafetensorsReader
from mmhash_service.bodies.stream import BACKGROUND_BYTES
from mmhash_service.items.json_items import JsonReader
from mmhash_service.runtime import metrics
from mmhash_service.runtime.context import RequestContext, build_context
from mmhash_service.runtime.limits import declared_length, read_body
from mmhash_service.tenants import HEADER

router = APIRouter()

RAW = ("application", "octet-stream")
SAFETENSORS = ("application", "x-safetensors")
JSON = ("application", "json")
MULTIPART = ("multipart", "form-data")
MEDIA = frozenset({"image", "video", "audio"})

_NO_QUERY = HashQuery()

# Bodies that are worth a thread, if there is one to spare.
_LONG = 4 << 20

# For OpenAPI, which cannot see that the handler reads the body by itself.
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_ASKED = {
    "parameters": [
        *query_parameters(HashQuery),
        {"name": HEADER, "in": "header", "schema": {"type": "string"}},
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": _BINARY,
            "image/*": _BINARY,
            "video/*": _BINARY,
            "audio/*": _BINARY,
            "application/x-safetensors": _BINARY,
            "multipart/form-data": {
                "schema": {"type": "object", "additionalProperties": _BINARY["schema"]}
            },
            **json_body(HashBody)["requestBody"]["content"],
        },
    },
}


@router.post("/hash", openapi_extra=_ASKED, response_model=HashAnswer)
async def hash_body(request: Request) -> Response:
    """Hash the body: plain bytes, a tensor's elements, an image's pixels, or many of them."""
    start = perf_counter()
    query = _parse_query(request)
    content_type = request.headers.get("content-type", "")
    media_type = parse_media_type(content_type)

    state = request.app.state
    with state.limits.admit() as admission:
        call = build_context(request, query, admission)
        reader: Reader
        if media_type == MULTIPART:
            _refuse_tensor(query)
            reader = MultipartReader(call, content_type, lambda of, name: _reader(call, of, name))
        elif media_type == JSON:
            _refuse_tensor(query)
            reader = JsonReader(call)
        elif (query.dtype, query.shape) != (None, None):
            reader = _tensor_reader(request, call, query, media_type)
        else:
            reader = _reader(call, content_type, None)
        is_long = (declared_length(request) or 0) >= _LONG
        if (
            is_long
            and isinstance(reader, StreamReader)
            and state.limits.has_spare_capacity(BACKGROUND_BYTES)
        ):
            reader.hash_in_background()
        settings = state.settings
        await read_body(request, settings.max_body_bytes, reader.take, settings.stall_timeout_s)
        items = await reader.finish()
    for item in items:
        metrics.ITEMS.labels(item.kind).inc()
    answer = HashAnswer(items=items, elapsed_ms=round(1000 * (perf_counter() - start), 3))
    return Response(answer.model_dump_json(exclude_unset=True), media_type="application/json")


def _parse_query(request: Request) -> HashQuery:
    """The query; FastAPI, told of it, would take as long as all the rest of a small call."""
    if not request.scope["query_string"]:
        return _NO_QUERY
    return parse_query(request.query_params, HashQuery)


def _reader(call: RequestContext, content_type: str, name: str | None) -> Reader:
    """What reads a body, or a part, of that type."""
    media_type = main, _ = parse_media_type(content_type)
    if media_type == SAFETENSORS:
        return SafetensorsReader(call)
    if media_type != RAW and main not in MEDIA:
        raise Problem("unsupported-media-type")
    if not call.pixels:
        return StreamReader(call, name)
    if main != "image":
        raise Problem("pixels-not-image")
    return PixelsReader(call, name)


def _tensor_reader(
    request: Request, call: RequestContext, query: HashQuery, media_type: tuple[str, str]
) -> Reader:
    if media_type != RAW:
        if media_type != SAFETENSORS and media_type[0] not in MEDIA:
            raise Problem("unsupported-media-type")
        raise Problem("tensor-not-raw")
    if call.pixels:
        raise Problem("pixels-not-image")
    if query.dtype is None or query.shape is None:
        raise Problem("incomplete-tensor")
    dtype, shape = parse_dtype(query.dtype), parse_shape(query.shape)
    if declared_length(request) not in {None, prod(shape) * ITEM_SIZE[dtype]}:
        raise Problem("wrong-length")
    return StreamReader(call, None, (dtype, shape))


def _refuse_tensor(query: HashQuery) -> None:
    if (query.dtype, query.shape) != (None, None):
        raise Problem("tensor-not-raw")
