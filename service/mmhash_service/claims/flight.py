"""Single flight across replicas: one replica computes, and the others wait for its result."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal

from mmhash.forks import keep_inherited
from mmhash_service.claims.claims import MAX_RESULT, Answer, Claims, ClaimsUnavailableError
from mmhash_service.claims.watch import Watch
from mmhash_service.runtime import metrics

logger = logging.getLogger(__name__)

# The others wait this long for a replica that was killed. A live one renews its lease three times
# within it: a stall of an event loop must not look like an exit.
LEASE_MS = 3000
_RENEW_S = LEASE_MS / 3000

# A replica that looked into the memo before the result was there asks for the claim afterwards.
_KEEP_MS = 30_000

_HOLDER_SIZE = 16

Outcome = Literal["computed", "taken-over", "waited", "unclaimed"]
"""`unclaimed`: computed without a lease, because the store failed or the wait was too long."""

Compute = Callable[[], Awaitable[bytes]]


class Flights:
    """The computations of one process that other replicas may wait for."""

    def __init__(self, claims: Claims, max_wait_s: float) -> None:
        self._claims = claims
        self._max_wait_s = max_wait_s
        self._watch = Watch(claims)
        # Claims that are being completed or given up after their answers.
        self._endings: set[asyncio.Task[None]] = set()

    async def run(self, name: bytes, compute: Compute) -> bytes:
        """Return the result of `compute`, as computed here or by another replica."""
        result, outcome = await self._run(name, compute)
        metrics.FLIGHTS.labels(outcome).inc()
        return result

    async def close(self) -> None:
        """Wait for the claims that are being completed."""
        self._watch.close()
        if self._endings:
            await asyncio.wait(self._endings)

    def abandon(self) -> None:
        """Forget all tasks after a fork: they belong to the parent."""
        keep_inherited(*self._endings)
        self._endings = set()
        self._watch.abandon()

    async def _run(self, name: bytes, compute: Compute) -> tuple[bytes, Outcome]:
        holder = secrets.token_bytes(_HOLDER_SIZE)
        give_up = time.monotonic() + self._max_wait_s
        lease_end, has_waited, is_refused = 0.0, False, False
        while True:
            try:
                answer = await self._claims.acquire(name, holder, LEASE_MS)
                is_refused = False
                if answer.state == "done":
                    return answer.result, "waited"
                if answer.state == "held":
                    result = await self._compute(name, holder, answer.fence, compute)
                    return result, "taken-over" if has_waited else "computed"
                lease_end = time.monotonic() + answer.remaining_ms / 1000
                await self._wait(name, give_up)
            except ClaimsUnavailableError:
                # The last lease that it saw may still be that of a live replica: it will put its
                # result into the memo, but nobody can see it. Computing again is only slower.
                await asyncio.sleep(max(0.0, min(lease_end, give_up) - time.monotonic()))
                # A full store answers, and takes no claim.
                if is_refused or not await self._is_reachable(name):
                    return await compute(), "unclaimed"
                is_refused = True
            if time.monotonic() >= give_up:
                return await compute(), "unclaimed"
            has_waited = True

    async def _wait(self, name: bytes, give_up: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, give_up - time.monotonic())):
                await self._watch.until_changed(name)

    async def _is_reachable(self, name: bytes) -> bool:
        try:
            await self._claims.look(name)
        except ClaimsUnavailableError:
            return False
        return True

    async def _compute(self, name: bytes, holder: bytes, fence: int, compute: Compute) -> bytes:
        """Compute with the lease, and end it in the background: no answer waits for that."""
        renewal = asyncio.create_task(self._renew(name, holder, fence))
        try:
            result = await compute()
        except BaseException:
            self._end(self._claims.fail(name, holder, fence))
            raise
        finally:
            renewal.cancel()
        short = result if len(result) <= MAX_RESULT else b""
        self._end(self._claims.complete(name, holder, fence, short, _KEEP_MS))
        return result

    async def _renew(self, name: bytes, holder: bytes, fence: int) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            with suppress(ClaimsUnavailableError):
                if (await self._claims.renew(name, holder, fence, LEASE_MS)).state == "lost":
                    return

    def _end(self, operation: Coroutine[Any, Any, Answer]) -> None:
        task = asyncio.create_task(_finish(operation))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)


async def _finish(operation: Coroutine[Any, Any, Answer]) -> None:
    try:
        await operation
    except ClaimsUnavailableError as error:
        logger.debug("a claim was not ended, and expires: %r", error)
