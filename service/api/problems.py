"""Every way in which a call can fail, and the one public text of each.

An exception's own words may hold paths, addresses or a client's bytes: they go to the log.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mmhash.view import ITEM_SIZE
from mmhash_service.api.schemas import ProblemAnswer
from mmhash_service.runtime.metrics import PROBLEMS as PROBLEMS_MET

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class ProblemSpec(NamedTuple):
    """What a problem tells the public."""

    status: int
    title: str
    detail: str


PROBLEMS = {
    "duplicate-header": ProblemSpec(
        400,
        "Duplicate header",
        "A header that takes one value, as Content-Type or X-Mmhash-Tenant, is there twice, in the "
        "request or in a part of its body: send it once.",
    ),
    "unauthorized": ProblemSpec(
        401, "Unauthorized", "This call needs an API key that is known, as Authorization: Bearer."
    ),
    "unknown-tenant": ProblemSpec(
        403, "Unknown tenant", "The tenant that X-Mmhash-Tenant names is not known here."
    ),
    "not-found": ProblemSpec(404, "Not found", "There is nothing at this path."),
    "method-not-allowed": ProblemSpec(
        405, "Method not allowed", "This path takes other methods: the Allow header names them."
    ),
    "in-place-off": ProblemSpec(
        403,
        "In place is off",
        "Items that lie in this host's memory are taken only with the setting shm or cuda_ipc on.",
    ),
    "url-off": ProblemSpec(
        403,
        "URL is off",
        "A URL is followed only to a host that the setting url_hosts names, and a file: URL only "
        "below the setting file_root.",
    ),
    "url-refused": ProblemSpec(
        403,
        "URL refused",
        "The URL leads where the server does not go: to no address or one that is not public, "
        "by a redirect to another host or from https to http, or by more than 3 redirects.",
    ),
    "sign-off": ProblemSpec(
        403, "Signing is off", "Tags are given only with a secret in the setting tag_secrets."
    ),
    "stalled-body": ProblemSpec(
        408,
        "Stalled body",
        "Of the body fewer than 1024 bytes came in the time of the setting stall_timeout_s.",
    ),
    "body-too-large": ProblemSpec(
        413, "Body too large", "The body is longer than the setting max_body_bytes allows."
    ),
    "image-too-large": ProblemSpec(
        413,
        "Image too large",
        "The image has more pixels, all its frames together, than the setting max_pixels allows, "
        "or more than 10000 frames.",
    ),
    "url-too-large": ProblemSpec(
        413,
        "URL too large",
        "What the URL points to is longer than the setting url_max_bytes allows.",
    ),
    "json-too-large": ProblemSpec(
        413,
        "JSON too large",
        "The JSON is longer than the setting max_json_bytes allows, or has more than 150000 "
        "values.",
    ),
    "too-many-items": ProblemSpec(
        413, "Too many items", "The body has more items than the setting max_items allows."
    ),
    "unsupported-media-type": ProblemSpec(
        415,
        "Unsupported media type",
        "The Content-Type is one of application/octet-stream, image/*, video/*, audio/*, "
        "application/x-safetensors, and of a whole body multipart/form-data or application/json.",
    ),
    "not-json": ProblemSpec(415, "Not JSON", "The Content-Type of this call is application/json."),
    "unsupported-encoding": ProblemSpec(
        415,
        "Unsupported encoding",
        "A body and its parts are taken as they are: without a Content-Encoding, and with no "
        "Content-Transfer-Encoding but binary, 8bit and 7bit.",
    ),
    "unsupported-image": ProblemSpec(
        415,
        "Unsupported image",
        "Pixels are read from JPEG, PNG, WebP, GIF, BMP and TIFF: the body is none of them.",
    ),
    "invalid-query": ProblemSpec(
        422,
        "Invalid query",
        "The query has a name that is not known or stands twice, or a value that is not allowed.",
    ),
    "incomplete-tensor": ProblemSpec(
        422, "Incomplete tensor", "A tensor needs both dtype and shape: one of them is missing."
    ),
    "unknown-dtype": ProblemSpec(
        422, "Unknown dtype", f"The dtype is one of {', '.join(ITEM_SIZE)}."
    ),
    "invalid-shape": ProblemSpec(
        422,
        "Invalid shape",
        "The shape is at most 32 natural numbers below 2**63, in digits, with a comma between two; "
        "empty for a tensor of no dimensions.",
    ),
    "tensor-not-raw": ProblemSpec(
        422,
        "Tensor not raw",
        "With dtype and shape the body is application/octet-stream: the elements alone, "
        "little-endian and in C order.",
    ),
    "wrong-length": ProblemSpec(
        422,
        "Wrong length",
        "The body's length is not the product of the shape times the size of an element.",
    ),
    "pixels-not-image": ProblemSpec(
        422, "Pixels of no image", "Only of an image/* body can the pixels be hashed."
    ),
    "costly-image": ProblemSpec(
        422,
        "Costly image",
        "To decode the image takes more time or memory than its bytes and pixels account for.",
    ),
    "damaged-image": ProblemSpec(
        422, "Damaged image", "The image is truncated or cannot be decoded."
    ),
    "unknown-engine": ProblemSpec(
        422,
        "Unknown engine",
        "An engine is spelled sglang@0.5.23, or sglang for its newest release: /info lists those "
        "that are known.",
    ),
    "refused-by-engine": ProblemSpec(
        422,
        "Refused by the engine",
        "That release of the engine takes no such ids, spans or names.",
    ),
    "no-field": ProblemSpec(
        422,
        "No field",
        "In such a request that release of the engine takes no hash: docs/engines.md has a table "
        "of those that do.",
    ),
    "invalid-span": ProblemSpec(
        422,
        "Invalid span",
        "A span has either a key or a hash; vLLM goes by the key alone.",
    ),
    "damaged-multipart": ProblemSpec(
        422,
        "Damaged multipart",
        "The multipart/form-data has no good boundary, a part without a name, or no end.",
    ),
    "invalid-safetensors-header": ProblemSpec(
        422,
        "Invalid safetensors header",
        "The header is at most 1 MiB of JSON, and its tensors lie one after another without a "
        "hole or an overlap, each as long as its dtype and shape say.",
    ),
    "damaged-safetensors": ProblemSpec(
        422, "Damaged safetensors", "The body is not as long as its header says."
    ),
    "invalid-json": ProblemSpec(
        422, "Invalid JSON", "The body is not JSON of the form that /openapi.json describes."
    ),
    "no-content": ProblemSpec(422, "No content", "An item has one of data, url, shm and cuda_ipc."),
    "invalid-base64": ProblemSpec(422, "Invalid base64", "An item's data is plain base64, padded."),
    "invalid-url": ProblemSpec(
        422,
        "Invalid URL",
        "An item's URL is a data: URL without a fragment and with at most 100000 escapes, or an "
        "http(s): or file: URL of at most 4096 bytes, plainly spelled, without credentials.",
    ),
    "sign-engine": ProblemSpec(
        422, "No engine to sign for", "A tag is for one engine: with sign, engines names just one."
    ),
    "invalid-bundle": ProblemSpec(
        422,
        "Invalid bundle",
        "A bundle is a tensor with either grids or counts, which add up to its first dimension.",
    ),
    "other-host": ProblemSpec(
        422,
        "Other host",
        "The proof's nonce is not in shared memory that the server sees: send the bytes instead.",
    ),
    "invalid-handle": ProblemSpec(
        422,
        "Invalid handle",
        "The handle of an item in place is not one, cannot be opened, or is of another kind.",
    ),
    "internal-error": ProblemSpec(
        500,
        "Internal error",
        "The server failed to answer. Its log says why, this answer does not.",
    ),
    "url-failed": ProblemSpec(
        502,
        "URL failed",
        "The URL's host or file did not give the content: whole, as it is and as long as it said.",
    ),
    "url-timeout": ProblemSpec(
        504,
        "URL timeout",
        "The URL's content did not come in the time of the setting url_timeout_s.",
    ),
    "busy": ProblemSpec(
        429,
        "Busy",
        "The server holds as many bytes or calls as max_held_bytes and max_calls allow.",
    ),
    "draining": ProblemSpec(503, "Draining", "The server is stopping: it takes no new calls."),
    "too-slow": ProblemSpec(
        503, "Too slow", "The work took longer than the setting work_timeout_s allows."
    ),
    "decoder-failed": ProblemSpec(
        503, "Decoder failed", "The process that decoded the image ended before it was done."
    ),
    "not-ready": ProblemSpec(
        503, "Not ready", "A backend gives a wrong digest, or none, or no decoder has started."
    ),
}

# What a client should know beside the text.
_HEADERS = {
    "duplicate-header": {"Connection": "close"},
    "unauthorized": {"WWW-Authenticate": "Bearer"},
    "busy": {"Retry-After": "1"},
    "draining": {"Retry-After": "1", "Connection": "close"},
    "stalled-body": {"Connection": "close"},
    "too-slow": {"Retry-After": "1"},
    "decoder-failed": {"Retry-After": "1"},
}

_BY_STATUS = {404: "not-found", 405: "method-not-allowed"}


class Problem(Exception):  # noqa: N818  (the word of RFC 9457)
    """A call that cannot be answered, by its name in `PROBLEMS`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def answer_with_problems(app: FastAPI) -> None:
    """Have `app` answer every failure with a problem."""
    for kind in (Problem, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)


async def _answer(_request: Request, error: Exception) -> Response:
    match error:
        case Problem():
            if error.__cause__ is not None:
                logger.info("%s: %s", error.name, _cause(error.__cause__))
            return response(error.name)
        case RequestValidationError():
            return response("invalid-query")
        case HTTPException() if error.status_code in _BY_STATUS:
            return response(_BY_STATUS[error.status_code], error.headers)
        case _:  # uvicorn logs it
            return response("internal-error")


def _cause(error: BaseException) -> str:
    """Why, for the log; of what quotes the client's bytes or names only the kind."""
    if isinstance(error, ValidationError):
        kinds = {entry["type"] for entry in error.errors(include_input=False, include_url=False)}
        return f"{type(error).__name__}({', '.join(sorted(kinds))})"
    return repr(error)


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    """The client has gone half-way: no failure of ours, and nobody reads this."""
    return Response(status_code=400)


def response(name: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a call that failed that way."""
    status, title, detail = PROBLEMS[name]
    PROBLEMS_MET.labels(name).inc()
    answer = ProblemAnswer(
        type=f"urn:mmhash:problem:{name}", title=title, status=status, detail=detail
    )
    headers = headers or _HEADERS.get(name)
    return Response(answer.model_dump_json(), status, headers, media_type=MEDIA_TYPE)
