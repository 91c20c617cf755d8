"""Requests, retried after temporary failures until the deadline of their call."""

import json
import random
from collections.abc import Mapping
from typing import Any

import httpcore

from mmhash.client.effects import (
    RESPONSE_BASE,
    Effects,
    OutOfTimeError,
    Pause,
    Request,
    RunInThread,
)
from mmhash.client.responses import (
    NoResponseError,
    Response,
    ResponseTooLongError,
    document,
    error_from_response,
)
from mmhash.client.session import Session
from mmhash.errors import InputTypeError, InputValueError, ServiceError

# The same request may succeed a little later.
_TEMPORARY = frozenset({429, 503})
_FIRST_PAUSE_S = 0.1

_OK = 200
_JSON = "application/json"

_CONNECTION_ERRORS = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
    OSError,
)


def send_with_retry(session: Session, request: Request) -> Effects[Response]:
    """Send a request until it succeeds, or fails for good, and return its response.

    Each request may be sent again after any failure: none changes the state of the service.
    """
    retries = 0
    while True:
        try:
            return (yield from send_once(session, request))
        except ServiceError as error:
            is_temporary = isinstance(error, NoResponseError) or error.status in _TEMPORARY
            if not is_temporary or retries == session.retries:
                raise
            failure = error
        # Clients that were refused together should not return together.
        jitter_s = random.uniform(0.5, 1) * _FIRST_PAUSE_S * 2**retries  # noqa: S311  (no secret)
        try:
            yield Pause((failure.retry_after or 0.0) + jitter_s)
        except OutOfTimeError:
            raise failure from None
        retries += 1


def send_once(session: Session, request: Request) -> Effects[Response]:
    """Send a request once, and return its response; raise ServiceError unless it succeeds."""
    try:
        response: Response = yield request
    except httpcore.TimeoutException as error:
        raise NoResponseError(
            f"no response: the call took longer than {session.timeout:g} s"
        ) from error
    except _CONNECTION_ERRORS as error:
        raise NoResponseError(f"no response: {str(error) or type(error).__name__}") from error
    except ResponseTooLongError:
        raise ServiceError(
            f"the response is longer than {request.limit} bytes, the limit for this request"
        ) from None
    if response.status != _OK:
        raise error_from_response(response)
    return response


def post_json(
    session: Session,
    path: str,
    body: Any,
    query: Mapping[str, str] | None = None,
    *,
    limit: int = RESPONSE_BASE,
    per_byte: int = 0,
) -> Effects[Any]:
    """Post JSON and return the JSON of the response.

    The response may have `limit` bytes, and `per_byte` more for each byte of the request.
    """
    content = yield RunInThread(lambda: memoryview(_encode(body)))
    limit += per_byte * len(content)
    request = Request("POST", path, query or {}, _JSON, content, limit)
    response = yield from send_with_retry(session, request)
    return (yield RunInThread(lambda: document(response)))


def _encode(body: Any) -> bytes:
    """Encode a body as UTF-8: a chat with an image of 1 MiB takes 3 ms, and 12 ms as ASCII."""
    try:
        # The service refuses lone surrogates, which are not valid UTF-8.
        text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    except TypeError as error:
        raise InputTypeError(f"the request cannot be written as JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputValueError(f"the request cannot be written as JSON: {error}") from None
    return text.encode(errors="surrogatepass")
