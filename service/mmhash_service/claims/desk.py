"""The actions of `POST /claim`: claims of one tenant, whose results are sealed in the store."""

import asyncio
import json
import time
from contextlib import suppress
from typing import Any

from blake3 import blake3

from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas.claims import ClaimAnswer, ClaimBody, FoundClaims
from mmhash_service.claims.claims import Answer, Claims, ClaimsUnavailableError
from mmhash_service.claims.watch import Watch
from mmhash_service.memo.entries import SealedEntry
from mmhash_service.runtime import metrics

_MAX_RESULT = 16 << 10


class ClaimDesk:
    """Answers the bodies of one process."""

    def __init__(self, claims: Claims, *, is_alone: bool) -> None:
        self._claims = claims
        self._watch = Watch(claims)
        self._is_usable = claims.is_shared or is_alone

    async def answer(self, space: bytes, body: ClaimBody) -> ClaimAnswer | FoundClaims:
        """Do what the body asks for; claims of different spaces are different ones."""
        if not self._is_usable:
            raise Problem("claims-off")
        try:
            if body.keys is not None:
                entries = [_entry(space, key) for key in body.keys]
                # In turn: one body must not use up the connections to the store.
                answers = [_found(e, await self._claims.look(e.name)) for e in entries]
                return FoundClaims(claims=answers)
            return await self._answer_one(_entry(space, body.key or ""), body)
        except ClaimsUnavailableError as error:
            raise Problem("claims-unavailable") from error

    def close(self) -> None:
        """Stop waiting."""
        self._watch.close()

    async def _answer_one(self, entry: SealedEntry, body: ClaimBody) -> ClaimAnswer:
        answer = await self._run(entry, body)
        if answer.state == "lost":
            metrics.CLAIMS.labels(body.action, "lost").inc()
            raise Problem("claim-lost")
        public = _public(entry, answer)
        metrics.CLAIMS.labels(body.action, public.state).inc()
        return public

    async def _run(self, entry: SealedEntry, body: ClaimBody) -> Answer:
        # Hashed, so that a reader of the store cannot act as the holder.
        holder = blake3((body.holder or "").encode()).digest(length=16)
        fence, ttl_ms = body.fence or 0, round(1000 * body.ttl_s)
        match body.action:
            case "renew":
                return await self._claims.renew(entry.name, holder, fence, ttl_ms)
            case "complete":
                text = _encode(body.result)
                keep_ms = round(1000 * body.keep_s)
                sealed = entry.seal(text)
                return await self._claims.complete(entry.name, holder, fence, sealed, keep_ms)
            case "fail":
                return await self._claims.fail(entry.name, holder, fence)
        deadline = time.monotonic() + body.wait_s
        while True:
            if body.action == "acquire":
                answer = await self._claims.acquire(entry.name, holder, ttl_ms)
            else:
                answer = await self._claims.look(entry.name)
            left_s = deadline - time.monotonic()
            if answer.state != "busy" or left_s <= 0:
                return answer
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._watch.until_changed(entry.name)


def _encode(result: dict[str, Any] | None) -> bytes:
    try:
        options: Any = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
        text = json.dumps(result, **options).encode()
    except ValueError as error:  # NaN, or half of a surrogate pair
        raise Problem("invalid-json") from error
    if len(text) > _MAX_RESULT:
        raise Problem("claim-too-large")
    return text


def _entry(space: bytes, key: str) -> SealedEntry:
    return SealedEntry(b"claim", space, key.encode(errors="surrogatepass"))


def _found(entry: SealedEntry, answer: Answer) -> ClaimAnswer:
    try:
        return _public(entry, answer)
    except Problem:
        return ClaimAnswer(state="free", fence=answer.fence)


def _public(entry: SealedEntry, answer: Answer) -> ClaimAnswer:
    """Return the answer with its result opened; raise a Problem if it is forged."""
    public = ClaimAnswer(
        state=answer.state if answer.state != "lost" else "free",
        fence=answer.fence,
        remaining_ms=answer.remaining_ms or None,
    )
    if answer.state == "done":
        text = entry.open(answer.result)
        if text is None:
            raise Problem("claims-unavailable")
        public.result = json.loads(text)
    return public
