"""Waiting for claims: one poll serves all requests of this process that wait for a claim."""

import asyncio
import random

from mmhash.forks import keep_inherited
from mmhash_service.claims.claims import Claims

# An image is decoded in some milliseconds, an embedding computed in some hundred.
FIRST_PAUSE_S = 0.002
MAX_PAUSE_S = 0.05


class Watch:
    """The polls of one process."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._polls: dict[bytes, asyncio.Task[None]] = {}

    async def until_changed(self, name: bytes) -> None:
        """Return once the claim is free or done; raise ClaimsUnavailableError as the store does."""
        poll = self._polls.get(name)
        if poll is None:
            poll = self._polls[name] = asyncio.create_task(self._poll(name))
            poll.add_done_callback(lambda task: self._discard(name, task))
        await asyncio.shield(poll)

    def close(self) -> None:
        """Stop all polls."""
        for poll in self._polls.values():
            poll.cancel()

    def abandon(self) -> None:
        """Forget the polls after a fork: they belong to the parent."""
        keep_inherited(*self._polls.values())
        self._polls = {}

    async def _poll(self, name: bytes) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            # Replicas that began to wait together should not poll together.
            await asyncio.sleep(random.uniform(0.5, 1) * pause_s)  # noqa: S311  (no secret)
            answer = await self._claims.look(name)
            if answer.state != "busy":
                return
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _discard(self, name: bytes, poll: asyncio.Task[None]) -> None:
        if self._polls.get(name) is poll:
            del self._polls[name]
        if not poll.cancelled():
            poll.exception()  # mark it as retrieved: perhaps no request waits any more
