"""Problem responses (`application/problem+json`), and the exception handlers that send them."""

import logging
from collections.abc import Mapping, Sequence

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from mmhash_service.problems.catalogue import PROBLEMS
from mmhash_service.problems.problem import InvalidPart, Problem
from mmhash_service.telemetry import metrics

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

_HEADERS = {
    "duplicate-header": {"Connection": "close"},
    "unauthorized": {"WWW-Authenticate": "Bearer"},
    "busy": {"Retry-After": "1"},
    "draining": {"Retry-After": "1", "Connection": "close"},
    "stalled-body": {"Connection": "close"},
    "too-slow": {"Retry-After": "1"},
    "decoder-failed": {"Retry-After": "1"},
    "no-workers": {"Retry-After": "2"},
    "worker-failed": {"Retry-After": "1"},
}

_BY_STATUS = {404: "not-found", 405: "method-not-allowed"}


def problem_response(
    name: str,
    headers: Mapping[str, str] | None = None,
    parts: Sequence[InvalidPart] = (),
    reason: str | None = None,
) -> Response:
    """Return the response for the problem, and count the problem."""
    problem = PROBLEMS[name]
    metrics.PROBLEMS.labels(name).inc()
    document = problem.document(name, reason, parts)
    headers = headers or _HEADERS.get(name)
    return JSONResponse(document, problem.status, headers, media_type=MEDIA_TYPE)


def response_to(error: Exception) -> Response:
    """Return the response to a failed request. A client that has disconnected will not see it."""
    match error:
        case Problem():
            if error.__cause__ is not None:
                logger.info("%s: %s", error.name, _describe(error.__cause__))
            return problem_response(error.name, parts=error.parts, reason=error.reason)
        case ClientDisconnect():
            return Response(status_code=499)  # the same as in the access log
        case HTTPException() if error.status_code in _BY_STATUS:
            return problem_response(_BY_STATUS[error.status_code], error.headers)
        case _:  # the server logs the error
            return problem_response("internal-error")


def add_problem_handlers(app: FastAPI) -> None:
    """Make `app` answer every failure with a problem."""

    async def handle(_request: Request, error: Exception) -> Response:
        return response_to(error)

    for kind in (Problem, ClientDisconnect, HTTPException, Exception):
        app.add_exception_handler(kind, handle)


def _describe(error: BaseException) -> str:
    """Describe a cause for the log. If the error quotes the client's bytes, name only its kind."""
    if isinstance(error, ValidationError):
        kinds = {entry["type"] for entry in error.errors(include_input=False, include_url=False)}
        return f"{type(error).__name__}({', '.join(sorted(kinds))})"
    if isinstance(error, (UnicodeDecodeError, UnicodeEncodeError)):  # repr() has the whole text
        return f"{type(error).__name__}({error.reason})"
    return repr(error)
