"""The forms of requests, chosen by path.

A gateway knows the path of each request, so no member can make it read a request in another way
than the worker does. `/annotate`, `/plan` and `/route` know it if their caller gives it. If not, a
request with `messages` is a chat, one with `prompt` a completion, one with `input` a Responses
request, and any other is native. `/invocations` has no form: SGLang takes chats there, and vLLM
decides by the members.
"""

from collections.abc import Callable, Mapping

from mmhash.engines.engine import Engine
from mmhash.errors import InputValueError
from mmhash.requests import chat, completions, generate, messages, responses
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
"""The form of the requests of each path that plans know."""

COUNTING_PATHS = frozenset({"/v1/messages/count_tokens"})
"""Paths whose requests an engine only counts: any worker can answer, and caches nothing."""

_READERS: Mapping[Form, Callable[[Document, Engine, str], EngineRequest]] = {
    "chat": chat.read,
    "completions": completions.read,
    "generate": generate.read,
    "messages": messages.read,
    "responses": responses.read,
}


def form_of_path(path: str | None) -> Form | None:
    """Return the form of a path; None without a path. One that plans do not know is an error."""
    if path is None:
        return None
    if path not in PATHS:
        raise InputValueError(f"no requests are known at that path: take one of {', '.join(PATHS)}")
    return PATHS[path]


def read_for(document: Document, engine: Engine, release: str) -> EngineRequest:
    """Return the request as a release of an engine reads it."""
    return _READERS[document.form](document, engine, release)
