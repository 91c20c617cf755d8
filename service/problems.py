"""Every way in which a call can fail, and the one public text of each.

An exception's own words may hold paths, addresses or a client's bytes: they go to the log.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mmhash.view import ITEM_SIZE
from mmhash_service.schemas import ProblemAnswer

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class Text(NamedTuple):
    """What a problem tells the public."""

    status: int
    title: str
    detail: str


PROBLEMS = {
    "not-found": Text(404, "Not found", "There is nothing at this path."),
    "method-not-allowed": Text(
        405, "Method not allowed", "This path takes other methods: the Allow header names them."
    ),
    "body-too-large": Text(
        413, "Body too large", "The body is longer than the setting max_body_bytes allows."
    ),
    "image-too-large": Text(
        413,
        "Image too large",
        "The image has more pixels, all its frames together, than the setting max_pixels allows, "
        "or more than 10000 frames.",
    ),
    "unsupported-media-type": Text(
        415,
        "Unsupported media type",
        "The Content-Type is one of application/octet-stream, image/*, video/*, audio/*.",
    ),
    "unsupported-encoding": Text(
        415, "Unsupported encoding", "A body is taken as it is: without a Content-Encoding."
    ),
    "unsupported-image": Text(
        415,
        "Unsupported image",
        "Pixels are read from JPEG, PNG, WebP, GIF, BMP and TIFF: the body is none of them.",
    ),
    "invalid-query": Text(
        422,
        "Invalid query",
        "The query has a name that is not known, or a value that is not allowed.",
    ),
    "incomplete-tensor": Text(
        422, "Incomplete tensor", "A tensor needs both dtype and shape: one of them is missing."
    ),
    "unknown-dtype": Text(422, "Unknown dtype", f"The dtype is one of {', '.join(ITEM_SIZE)}."),
    "invalid-shape": Text(
        422,
        "Invalid shape",
        "The shape is at most 32 natural numbers below 2**63, in digits, with a comma between two; "
        "empty for a tensor of no dimensions.",
    ),
    "tensor-not-raw": Text(
        422,
        "Tensor not raw",
        "With dtype and shape the body is application/octet-stream: the elements alone, "
        "little-endian and in C order.",
    ),
    "wrong-length": Text(
        422,
        "Wrong length",
        "The body's length is not the product of the shape times the size of an element.",
    ),
    "pixels-not-image": Text(
        422, "Pixels of no image", "Only of an image/* body can the pixels be hashed."
    ),
    "damaged-image": Text(422, "Damaged image", "The image is truncated or cannot be decoded."),
    "internal-error": Text(
        500,
        "Internal error",
        "The server failed to answer. Its log says why, this answer does not.",
    ),
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
                logger.info("%s: %r", error.name, error.__cause__)
            return _response(error.name)
        case RequestValidationError():
            return _response("invalid-query")
        case HTTPException() if error.status_code in _BY_STATUS:
            return _response(_BY_STATUS[error.status_code], error.headers)
        case _:  # uvicorn logs it
            return _response("internal-error")


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    """The client has gone half-way: no failure of ours, and nobody reads this."""
    return Response(status_code=400)


def _response(name: str, headers: Mapping[str, str] | None = None) -> Response:
    status, title, detail = PROBLEMS[name]
    answer = ProblemAnswer(
        type=f"urn:mmhash:problem:{name}", title=title, status=status, detail=detail
    )
    return Response(answer.model_dump_json(), status, headers, media_type=MEDIA_TYPE)
