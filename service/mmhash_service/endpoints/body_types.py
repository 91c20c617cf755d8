"""The Content-Types of `POST /hash`: one table for bodies, parts of forms and OpenAPI."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from mmhash_service.bodies.parsing import (
    check_length,
    parse_dtype,
    parse_media_type,
    parse_shape,
    unsupported_type,
)
from mmhash_service.endpoints.openapi import json_schema
from mmhash_service.items.context import RequestContext
from mmhash_service.items.json_items import JsonReader
from mmhash_service.items.multipart import MultipartReader
from mmhash_service.items.npy import NpyReader
from mmhash_service.items.readers import PixelsReader, Reader, StreamReader
from mmhash_service.items.safetensors import SafetensorsReader
from mmhash_service.items.schema import HashBody, HashQuery
from mmhash_service.problems.problem import Problem, shown

_BINARY = {"type": "string", "format": "binary"}


class BodyType(NamedTuple):
    """A Content-Type that `POST /hash` accepts."""

    # Takes the whole Content-Type, and the part's name, or None for a whole body.
    open: Callable[[RequestContext, str, str | None], Reader]
    schema: dict[str, Any] = _BINARY
    may_be_part: bool = True
    may_be_tensor: bool = False


def find_body_type(content_type: str) -> BodyType:
    """Return the entry for a Content-Type."""
    main, sub = parse_media_type(content_type) or ("", "")
    body_type = BODY_TYPES.get(f"{main}/{sub}") or BODY_TYPES.get(f"{main}/*")
    if body_type is None:
        raise unsupported_type(content_type, ", ".join(BODY_TYPES))
    return body_type


def open_body(
    context: RequestContext,
    body_type: BodyType,
    content_type: str,
    query: HashQuery,
    length: int | None,
) -> Reader:
    """Return the reader for a whole body. `length` is its Content-Length, if it has one."""
    if query.dtype is None and query.shape is None:
        return body_type.open(context, content_type, None)
    if not body_type.may_be_tensor:
        reason = (
            f"dtype and shape need the Content-Type application/octet-stream, not"
            f" {shown(content_type)}"
        )
        raise Problem("invalid-tensor", reason=reason)
    return _open_tensor(context, query, length)


def _open_part(context: RequestContext, content_type: str, name: str) -> Reader:
    body_type = find_body_type(content_type)
    if not body_type.may_be_part:
        raise unsupported_type(content_type, "it only as a body of its own, not in a form")
    return body_type.open(context, content_type, name)


def _open_file(context: RequestContext, content_type: str, name: str | None) -> Reader:
    _refuse_decoding(context, content_type)
    is_media = not content_type.lower().startswith("application/")
    return StreamReader(context, name, is_media=is_media)


def _refuse_decoding(context: RequestContext, content_type: str) -> None:
    if context.pixels:
        reason = f"of=pixels needs the Content-Type image/*, not {shown(content_type)}"
        raise Problem("invalid-query", reason=reason)


def _open_tensor(context: RequestContext, query: HashQuery, length: int | None) -> Reader:
    _refuse_decoding(context, "application/octet-stream")
    if query.dtype is None or query.shape is None:
        given = f"shape={query.shape!r}" if query.dtype is None else f"dtype={query.dtype!r}"
        reason = f"a tensor needs both dtype and shape, and the query has only {given[:100]}"
        raise Problem("invalid-tensor", reason=reason)
    dtype, shape = parse_dtype(query.dtype), parse_shape(query.shape)
    if length is not None:
        check_length(dtype, shape, length)
    return StreamReader(context, None, (dtype, shape))


def _open_image(context: RequestContext, content_type: str, name: str | None) -> Reader:
    if context.pixels:
        return PixelsReader(context, name)
    return _open_file(context, content_type, name)


def _open_safetensors(context: RequestContext, _content_type: str, _name: str | None) -> Reader:
    return SafetensorsReader(context)


def _open_npy(context: RequestContext, content_type: str, name: str | None) -> Reader:
    _refuse_decoding(context, content_type)
    return NpyReader(context, name)


def _open_multipart(context: RequestContext, content_type: str, _name: str | None) -> Reader:
    return MultipartReader(context, content_type, partial(_open_part, context))


def _open_json(context: RequestContext, _content_type: str, _name: str | None) -> Reader:
    return JsonReader(context)


BODY_TYPES = {
    "application/octet-stream": BodyType(_open_file, may_be_tensor=True),
    "image/*": BodyType(_open_image),
    "video/*": BodyType(_open_file),
    "audio/*": BodyType(_open_file),
    "application/x-safetensors": BodyType(_open_safetensors),
    "application/x-npy": BodyType(_open_npy),
    "multipart/form-data": BodyType(
        _open_multipart, {"type": "object", "additionalProperties": _BINARY}, may_be_part=False
    ),
    "application/json": BodyType(_open_json, json_schema(HashBody), may_be_part=False),
}
