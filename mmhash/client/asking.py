"""One request until it is answered: what is refused for now is asked again, within bounds."""

import json
import random
import time
from collections.abc import Mapping
from typing import Any

import httpx

from mmhash.client.answers import document, refusal, unanswered
from mmhash.client.session import Session
from mmhash.client.steps import Pause, Request, Steps, Work
from mmhash.errors import ServiceError

# Whoever answers so may answer well a little later; None is no answer at all.
_PASSING = frozenset({None, 429, 503})
_FIRST_PAUSE_S = 0.1

_JSON = "application/json"


def ask(session: Session, request: Request) -> Steps[httpx.Response]:
    """The good answer to a request.

    No call of the service changes anything, so each may be sent again whatever became of it.
    """
    end = time.monotonic() + session.timeout
    retries = 0
    while True:
        try:
            return (yield from ask_once(request))
        except ServiceError as error:
            # Not all that are sent away come back at the same moment.
            jitter_s = random.uniform(0.5, 1) * _FIRST_PAUSE_S * 2**retries  # noqa: S311  (no secret)
            pause_s = (error.retry_after or 0.0) + jitter_s
            is_last = retries == session.retries or time.monotonic() + pause_s > end
            if error.status not in _PASSING or is_last:
                raise
        yield Pause(pause_s)
        retries += 1


def ask_once(request: Request) -> Steps[httpx.Response]:
    """The good answer to a request that is sent but once."""
    try:
        response: httpx.Response = yield request
    except httpx.TransportError as error:
        raise unanswered(error) from error
    if not response.is_success:
        raise refusal(response)
    return response


def ask_json(
    session: Session, path: str, body: Any, query: Mapping[str, str] | None = None
) -> Steps[Any]:
    """The document that answers a document."""
    content = yield Work(lambda: memoryview(_encode(body)))
    response = yield from ask(session, Request("POST", path, query or {}, _JSON, content))
    return (yield Work(lambda: document(response)))


def _encode(body: Any) -> bytes:
    """The body as UTF-8: a chat with an image of 1 MiB takes 3 ms so, and 12 with ASCII alone."""
    # Half a pair of surrogates, which UTF-8 cannot spell, is the service's to refuse.
    return json.dumps(body, ensure_ascii=False).encode(errors="surrogatepass")
