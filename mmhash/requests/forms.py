"""The forms of requests, chosen by path.

A gateway knows the path of each request, so no member can make the gateway read a request
differently from the worker. `/annotate`, `/plan` and `/route` know the path if their caller names
it. Otherwise `messages` mean a chat, `prompt` a completion and `input` a Responses request; any
other request is native. `/invocations` has no form: SGLang takes chats there, and vLLM decides by
the members.
"""

from collections.abc import Callable, Mapping

from mmhash.engines.engine import Engine
from mmhash.errors import InputValueError
from mmhash.requests import chat, generate, messages, responses
from mmhash.requests.document import Document, Form
from mmhash.requests.engine_request import EngineRequest

PATHS: Mapping[str, Form] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "messages",
    "/v1/responses": "responses",
    "/generate": "generate",
}
"""The form of requests for each path that mmhash can plan."""

COUNTING_PATHS = frozenset({"/v1/messages/count_tokens"})
"""Paths that only count tokens. Any worker can answer, and none caches anything."""

_READERS: Mapping[Form, Callable[[Document, Engine, str], EngineRequest]] = {
    "chat": chat.read,
    "completions": EngineRequest,  # completions have no media
    "generate": generate.read,
    "messages": messages.read,
    "responses": responses.read,
}


def form_of_path(path: str | None) -> Form | None:
    """Return the form of a path, or None without a path. Raise if the path is not known."""
    if path is None:
        return None
    if path not in PATHS:
        raise InputValueError(
            f"mmhash does not read requests for that path: use one of {', '.join(PATHS)}"
        )
    return PATHS[path]


def read_for(document: Document, engine: Engine, release: str) -> EngineRequest:
    """Return the request as this release of the engine reads it."""
    return _READERS[document.form](document, engine, release)
