"""One request until it is answered: what is refused for now is asked again, within bounds."""

import json
import random
from collections.abc import Mapping
from typing import Any

import httpcore

from mmhash.client.answers import (
    Answer,
    AnswerTooLongError,
    UnansweredError,
    document,
    error_from_response,
)
from mmhash.client.effects import ANSWER_BASE, Effects, OutOfTimeError, Pause, Request, RunInThread
from mmhash.client.session import Session
from mmhash.errors import InputTypeError, InputValueError, ServiceError

# The service may answer well a little later.
_PASSING = frozenset({429, 503})
_FIRST_PAUSE_S = 0.1

_OK = 200
_JSON = "application/json"

_LOST = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
    OSError,
)


def send_with_retry(session: Session, request: Request) -> Effects[Answer]:
    """The good answer to a request.

    No call of the service changes anything, so each may be sent again whatever became of it.
    """
    retries = 0
    while True:
        try:
            return (yield from send_once(session, request))
        except ServiceError as error:
            is_passing = isinstance(error, UnansweredError) or error.status in _PASSING
            if not is_passing or retries == session.retries:
                raise
            refused = error
        # Not all that are sent away come back at the same moment.
        jitter_s = random.uniform(0.5, 1) * _FIRST_PAUSE_S * 2**retries  # noqa: S311  (no secret)
        try:
            yield Pause((refused.retry_after or 0.0) + jitter_s)
        except OutOfTimeError:
            raise refused from None
        retries += 1


def send_once(session: Session, request: Request) -> Effects[Answer]:
    """The good answer to a request that is sent but once."""
    try:
        answer: Answer = yield request
    except httpcore.TimeoutException as error:
        raise UnansweredError(
            f"no answer: the call took longer than {session.timeout:g} s"
        ) from error
    except _LOST as error:
        raise UnansweredError(f"no answer: {str(error) or type(error).__name__}") from error
    except AnswerTooLongError:
        raise ServiceError(
            f"the answer is longer than {request.limit} bytes, which this request cannot bring"
        ) from None
    if answer.status != _OK:
        raise error_from_response(answer)
    return answer


def post_json(
    session: Session,
    path: str,
    body: Any,
    query: Mapping[str, str] | None = None,
    *,
    limit: int = ANSWER_BASE,
    per_byte: int = 0,
) -> Effects[Any]:
    """The document that answers a document: `limit` bytes, and `per_byte` more for each sent."""
    content = yield RunInThread(lambda: memoryview(_encode(body)))
    allowed = limit + per_byte * len(content)
    request = Request("POST", path, query or {}, _JSON, content, allowed)
    answer = yield from send_with_retry(session, request)
    return (yield RunInThread(lambda: document(answer)))


def _encode(body: Any) -> bytes:
    """The body as UTF-8: a chat with an image of 1 MiB takes 3 ms so, and 12 with ASCII alone."""
    try:
        # Half a pair of surrogates, which UTF-8 cannot spell, is the service's to refuse.
        text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    except TypeError as error:
        raise InputTypeError(f"the request cannot be written as JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputValueError(f"the request cannot be written as JSON: {error}") from None
    return text.encode(errors="surrogatepass")
