"""`POST /hash`: the digest and the key of the body."""

from io import BytesIO
from math import prod
from time import perf_counter
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request

from mmhash import Digest, Hasher
from mmhash.cpu import hash_bytes
from mmhash.digest import Algorithm
from mmhash.framing import frame
from mmhash.view import ITEM_SIZE, Kind
from mmhash_service.limits import declared_length, read_body
from mmhash_service.media import read_pixels
from mmhash_service.parsing import parse_dtype, parse_media_type, parse_shape
from mmhash_service.problems import Problem
from mmhash_service.schemas import HashAnswer, HashQuery, Item
from mmhash_service.settings import Settings

router = APIRouter()

# For OpenAPI, which cannot see that the handler reads the body by itself.
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY = {
    "requestBody": {
        "required": True,
        "content": dict.fromkeys(
            ("application/octet-stream", "image/*", "video/*", "audio/*"), _BINARY
        ),
    }
}


@router.post("/hash", openapi_extra=_BODY)
async def hash_body(request: Request, query: Annotated[HashQuery, Query()]) -> HashAnswer:
    """Hash the body: plain bytes, a tensor's elements, or an image's pixels."""
    start = perf_counter()
    main, sub = parse_media_type(request.headers.get("content-type", ""))
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem("unsupported-encoding")
    is_raw = (main, sub) == ("application", "octet-stream")
    if not is_raw and main not in {"image", "video", "audio"}:
        raise Problem("unsupported-media-type")
    if query.of == "pixels" and main != "image":
        raise Problem("pixels-not-image")
    if not is_raw and (query.dtype, query.shape) != (None, None):
        raise Problem("tensor-not-raw")

    settings: Settings = request.app.state.settings
    if query.of == "pixels":
        item = await _hash_image(request, query.algorithm, settings)
    elif query.dtype is None and query.shape is None:
        digest, nbytes = await _hash_stream(request, query.algorithm, settings)
        item = _item("bytes", "", (), nbytes, digest)
    else:
        item = await _hash_tensor(request, query, settings)
    return HashAnswer(items=[item], elapsed_ms=round(1000 * (perf_counter() - start), 3))


async def _hash_stream(
    request: Request, algorithm: Algorithm, settings: Settings
) -> tuple[Digest, int]:
    hasher = Hasher(algorithm)
    nbytes = await read_body(request, settings.max_body_bytes, hasher.update)
    return Digest(algorithm, hasher.digest()), nbytes


async def _hash_tensor(request: Request, query: HashQuery, settings: Settings) -> Item:
    if query.dtype is None or query.shape is None:
        raise Problem("incomplete-tensor")
    dtype, shape = parse_dtype(query.dtype), parse_shape(query.shape)
    expected = prod(shape) * ITEM_SIZE[dtype]
    if declared_length(request) not in {None, expected}:
        raise Problem("wrong-length")
    digest, nbytes = await _hash_stream(request, query.algorithm, settings)
    if nbytes != expected:
        raise Problem("wrong-length")
    return _item("tensor", dtype, shape, nbytes, digest)


async def _hash_image(request: Request, algorithm: Algorithm, settings: Settings) -> Item:
    body = BytesIO()
    await read_body(request, settings.max_body_bytes, body.write)
    return await to_thread.run_sync(_hash_pixels, body, algorithm, settings.max_pixels)


def _hash_pixels(body: BytesIO, algorithm: Algorithm, max_pixels: int) -> Item:
    kind, dtype, shape, data, extra = read_pixels(body, max_pixels)
    return _item(kind, dtype, shape, len(data), hash_bytes(data, algorithm), extra=extra)


def _item(
    kind: Kind,
    dtype: str,
    shape: tuple[int, ...],
    nbytes: int,
    digest: Digest,
    *,
    extra: bytes = b"",
) -> Item:
    return Item(
        name=None,
        kind=kind,
        dtype=dtype,
        shape=shape,
        nbytes=nbytes,
        algorithm=digest.algorithm,
        digest=digest.hex(),
        key=frame(kind, dtype, shape, digest, extra).hex(),
    )
