"""Stands before an engine: a caller's hash goes through with a good tag alone (docs/guard.md).

It runs in the engine's process, so nothing here imports the service's metrics: they would add
themselves to the engine's own.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmhash import Digest, TagError
from mmhash.engines import sglang, trtllm, vllm
from mmhash.tags import open_tag
from mmhash_service.api.headers import has_duplicates
from mmhash_service.bodies.json_limits import MAX_VALUES
from mmhash_service.guard.caller_hashes import (
    MAX_TAGS,
    RefusedError,
    check_form,
    strip_unverified_hashes,
)
from mmhash_service.guard.settings import GuardSettings
from mmhash_service.request_fields import COMPRESSION_HEADERS, HEADERS

logger = logging.getLogger(__name__)

TENANT_HEADER = "x-mmhash-tenant"

# What is longer is looked at in a thread.
INLINE_MAX_BYTES = 32 << 10

# What a request may say of a key: mmhash.engines.spell() gives the same, and pad values, which
# take it 60 µs.
_HASHES_OF_KEY: dict[str, Callable[[Digest], tuple[str, ...]]] = {
    "sglang": lambda key: (sglang.mm_hash(key), f"sha256:{key.hex()}"),
    "vllm": lambda key: (vllm.uuid(key),),
    "trtllm": lambda key: (trtllm.uuid(key),),
    "dynamo": lambda key: (sglang.mm_hash(key),),
}

_PEER_HEADERS = frozenset(name.encode() for name in HEADERS)

_PROBLEMS = {
    "duplicate-header": (
        400,
        "Duplicate header",
        "A header that takes one value, as Content-Type, is there twice: send it once.",
    ),
    "untagged-hash": (403, "Untagged hash", "A caller's hash goes through with a good tag alone."),
    "named-peer": (
        403,
        "Named peer",
        (
            "A request may name a peer to load from, or an engine's internal state, only if the "
            "guard's setting allow_peers is on."
        ),
    ),
    "body-too-large": (
        413,
        "Body too large",
        (
            "The body is longer than the guard's setting max_body_bytes allows, or it has caller "
            f"hashes or tags and more than {MAX_VALUES} values or {MAX_TAGS} tags."
        ),
    ),
    "unsupported-encoding": (
        415,
        "Unsupported encoding",
        (
            "The guard takes a body as it is: without a Content-Encoding, without "
            "X-Body-Compressed, with no Transfer-Encoding but chunked, and a form in UTF-8."
        ),
    ),
    "unreadable-json": (
        422,
        "Unreadable JSON",
        (
            "The body is not JSON in UTF-8, is nested deeper than 200 levels, or has half of a "
            "surrogate pair or an integer of more than 4300 digits."
        ),
    ),
}
_ANSWERS = {
    name: JSONResponse(
        {"type": f"urn:mmhash:problem:{name}", "title": title, "status": status, "detail": detail},
        status,
        media_type="application/problem+json",
    )
    for name, (status, title, detail) in _PROBLEMS.items()
}


class Guard:
    """Passes a request on without the hashes for which none of its tags is good.

    The settings come as arguments, as in `Guard(app, engine="vllm", secrets=[...])`, or from the
    environment.
    """

    def __init__(self, app: ASGIApp, **settings: Any) -> None:
        self._app = app
        self._settings = GuardSettings(**settings)
        self._secrets = [
            bytes.fromhex(secret.get_secret_value()) for secret in self._settings.secrets
        ]
        # One: several would keep the event loop from the GIL for longer than its turn.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mmhash-guard")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it; a websocket passes: no engine takes a hash there."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            # Nothing here keeps the body while the app answers, which may take minutes.
            scope, receive = await self._guard(scope, receive)
        except RefusedError as refused:
            await _ANSWERS[str(refused)](scope, receive, send)
        except ClientDisconnect:
            return  # nobody to answer
        else:
            await self._app(scope, receive, send)

    async def _guard(self, scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
        """The request as it goes on."""
        if has_duplicates(scope["headers"]):
            raise RefusedError("duplicate-header")
        scope = self._without_peer_headers(scope)
        messages = await self._read(receive)
        pieces = [message.get("body", b"") for message in messages]
        written = await self._inspect(pieces, Headers(scope=scope))
        if written is None:
            return scope, _replay_then_receive(messages, receive)
        messages = [
            {"type": "http.request", "body": piece, "more_body": number < len(written)}
            for number, piece in enumerate(written, 1)
        ]
        return _with_length(scope, sum(map(len, written))), _replay_then_receive(messages, receive)

    def _without_peer_headers(self, scope: Scope) -> Scope:
        """The request's scope without headers that name a peer; or refuse it."""
        headers = scope["headers"]
        kept = [header for header in headers if header[0].lower() not in _PEER_HEADERS]
        if self._settings.allow_peers or len(kept) == len(headers):
            return scope
        if self._settings.on_untagged == "refuse":
            raise RefusedError("named-peer")
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
                raise RefusedError("body-too-large")
            if not message.get("more_body", False):
                return messages

    async def _inspect(self, pieces: list[bytes], headers: Headers) -> list[bytes] | None:
        """What goes on in the body's place; None if it goes on as it is."""
        length = sum(map(len, pieces))
        for name in COMPRESSION_HEADERS:
            if length and headers.get(name, "identity") != "identity":
                raise RefusedError("unsupported-encoding")
        if headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":
            raise RefusedError("unsupported-encoding")
        tenant = self._settings.tenant
        if self._settings.tenant_header:
            # Of two headers neither is believed: no tenant has a comma in its name.
            tenant = ",".join(headers.getlist(TENANT_HEADER)) or None
        content_type = headers.get("content-type", "")
        if length <= INLINE_MAX_BYTES:
            return self._look(pieces, content_type, tenant)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._look, pieces, content_type, tenant)

    def _look(
        self, pieces: list[bytes], content_type: str, tenant: str | None
    ) -> list[bytes] | None:
        body = b"".join(pieces)
        allow_peers = self._settings.allow_peers
        if not allow_peers:
            check_form(body, content_type)
        refuse = self._settings.on_untagged == "refuse"
        request_fields = partial(self._spell, tenant=tenant)
        return strip_unverified_hashes(body, request_fields, refuse=refuse, allow_peers=allow_peers)

    def _spell(self, tags: Iterable[Any], *, tenant: str | None) -> set[str]:
        """What a request may say, by those of the tags that are good."""
        spelled: set[str] = set()
        refused: list[TagError] = []
        engine = self._settings.engine
        for tag in tags:
            if isinstance(tag, str):
                try:
                    key = open_tag(tag, engine=engine, tenant=tenant, secrets=self._secrets)
                except TagError as error:
                    refused.append(error)
                else:
                    spelled.update(_HASHES_OF_KEY[engine](key))
        if refused:
            logger.info("refused %d tags, the first: %s", len(refused), refused[0])
        return spelled


def _with_length(scope: Scope, length: int) -> Scope:
    """The request's scope, for a body of that length."""
    scope = {**scope, "headers": list(scope["headers"])}
    headers = MutableHeaders(scope=scope)
    del headers["transfer-encoding"]
    headers["content-length"] = str(length)
    return scope


def _replay_then_receive(messages: list[Message], receive: Receive) -> Receive:
    """Give these messages, and then what is received."""
    waiting = deque(messages)

    async def give() -> Message:
        return waiting.popleft() if waiting else await receive()

    return give
