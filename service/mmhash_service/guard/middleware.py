"""Middleware in front of an engine: a caller's hash passes only with a valid tag (docs/guard.md).

The guard runs in the engine's process. It must not import the service's metrics, because they would
appear among the engine's own.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmhash import TagError
from mmhash.engines.caller_fields import COMPRESSION_HEADERS, PEER_HEADERS
from mmhash.engines.registry import find
from mmhash.errors import InputValueError
from mmhash.tags import open_tag
from mmhash_service.guard.caller_hashes import check_form, strip_unverified_hashes
from mmhash_service.guard.settings import TENANT_BY_HEADER, GuardSettings
from mmhash_service.limits.text import repeated_header
from mmhash_service.problems.catalogue import PROBLEMS
from mmhash_service.problems.problem import Problem

logger = logging.getLogger(__name__)

TENANT_HEADER = "x-mmhash-tenant"

# Longer bodies are parsed in a thread.
INLINE_MAX_BYTES = 32 << 10

_PEER_HEADERS = frozenset(name.encode() for name in PEER_HEADERS)


def _answer(problem: Problem) -> JSONResponse:
    spec = PROBLEMS[problem.name]
    document = spec.document(problem.name, problem.reason)
    return JSONResponse(document, spec.status, media_type="application/problem+json")


class Guard:
    """Forwards each request without the hashes that no valid tag allows.

    Settings are arguments, as in `Guard(app, engine="vllm", secrets=[...])`, or environment
    variables.
    """

    def __init__(self, app: ASGIApp, **settings: Any) -> None:
        self._app = app
        self._settings = GuardSettings(**settings)
        self._engine, _ = find(self._settings.engine)
        _refuse_unguarded(self._engine.unguarded_variable)
        self._secrets = [
            bytes.fromhex(secret.get_secret_value()) for secret in self._settings.secrets
        ]
        # One thread: several would keep the GIL from the event loop for too long.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mmhash-guard")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or refuse a request. Websockets pass, because no engine takes hashes there."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            # Do not keep the body while the engine responds, which may take minutes.
            scope, receive = await self._guard(scope, receive)
        except Problem as problem:
            await _answer(problem)(scope, receive, send)
        except ClientDisconnect:
            return
        else:
            await self._app(scope, receive, send)

    async def _guard(self, scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
        """Return the request to forward."""
        if (repeated := repeated_header(scope["headers"])) is not None:
            raise Problem("duplicate-header", reason=f"{repeated} was sent twice")
        scope = self._without_peer_headers(scope)
        messages = await self._read(receive)
        pieces = [message.get("body", b"") for message in messages]
        forwarded = await self._inspect(pieces, Headers(scope=scope), scope["path"])
        if forwarded is not None:
            scope = _with_length(scope, len(forwarded))
            messages = [{"type": "http.request", "body": forwarded, "more_body": False}]
        return scope, _replay_then_receive(messages, receive)

    def _without_peer_headers(self, scope: Scope) -> Scope:
        """Return the scope without headers that name a peer."""
        if self._settings.allow_peers:
            return scope
        kept = [one for one in scope["headers"] if one[0].lower() not in _PEER_HEADERS]
        return {**scope, "headers": kept}

    async def _read(self, receive: Receive) -> list[Message]:
        messages: list[Message] = []
        length = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            messages.append(message)
            length += len(message.get("body", b""))
            if length > self._settings.max_body_bytes:
                raise Problem("body-too-large")
            if not message.get("more_body", False):
                return messages

    async def _inspect(self, pieces: list[bytes], headers: Headers, path: str) -> bytes | None:
        """Return the body to forward, or None to forward it unchanged."""
        length = sum(map(len, pieces))
        for name in COMPRESSION_HEADERS:
            if length and headers.get(name, "identity") != "identity":
                raise Problem("unsupported-encoding")
        if headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":
            raise Problem("unsupported-encoding")
        tenant = self._settings.tenant
        if tenant == TENANT_BY_HEADER:
            tenant = headers.get(TENANT_HEADER) or None  # sent at most once, as checked above
        content_type = headers.get("content-type", "")
        if length <= INLINE_MAX_BYTES:
            return self._check(pieces, content_type, tenant, path)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, self._check, pieces, content_type, tenant, path
        )

    def _check(
        self, pieces: list[bytes], content_type: str, tenant: str | None, path: str
    ) -> bytes | None:
        body = b"".join(pieces)
        allow_peers = self._settings.allow_peers
        if not allow_peers:
            check_form(body, content_type)
        hashes_of_tags = partial(self._hashes_of_tags, tenant=tenant)
        return strip_unverified_hashes(body, hashes_of_tags, allow_peers=allow_peers, path=path)

    def _hashes_of_tags(self, tags: Iterable[Any], *, tenant: str | None) -> set[str]:
        """Return the hashes that the valid tags of a request allow."""
        allowed: set[str] = set()
        refused: list[TagError] = []
        for tag in tags:
            if isinstance(tag, str):
                try:
                    key = open_tag(
                        tag, engine=self._engine.name, tenant=tenant, secrets=self._secrets
                    )
                except TagError as error:
                    refused.append(error)
                else:
                    allowed.update(self._engine.hashes_of_key(key))
        if refused:
            logger.info("refused %d tags, the first: %s", len(refused), refused[0])
        return allowed


def _refuse_unguarded(variable: str | None) -> None:
    """Refuse an engine that will serve without middleware, because no guard would run."""
    value = os.environ.get(variable, "") if variable else ""
    if value.lower() not in {"", "0", "false", "n", "no"}:
        raise InputValueError(
            f"{variable}={value[:40]} starts a server without middleware, so the guard cannot"
            " protect it: unset the variable"
        )


def _with_length(scope: Scope, length: int) -> Scope:
    """Return the scope for a body of that length."""
    scope = {**scope, "headers": list(scope["headers"])}
    headers = MutableHeaders(scope=scope)
    del headers["transfer-encoding"]
    headers["content-length"] = str(length)
    return scope


def _replay_then_receive(messages: list[Message], receive: Receive) -> Receive:
    """Return a receive function that yields these messages first, then those of `receive`."""
    replayed = deque(messages)

    async def replay() -> Message:
        return replayed.popleft() if replayed else await receive()

    return replay
