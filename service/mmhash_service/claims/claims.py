"""The interface of claim stores: the state of a claim, and the operations that change it.

A claim is free, held until a deadline, or done with a result until a deadline. Each holder of a
claim has a fence: a number that is larger than that of each holder before it. A holder that was
stalled so long that another one took over has a fence that is too small, and can change nothing.
"""

from typing import Literal, NamedTuple, Protocol

State = Literal["held", "busy", "done", "free", "lost"]
"""`held` is held by the caller, `busy` by another holder; `lost` refuses any other holder."""

# The longest result: a location or the digest of an image; longer ones are not passed on.
MAX_RESULT = 64 << 10

# A record outlives its deadline by this time, so that a holder that was stalled and that nobody has
# replaced may still finish, and so that the next fence is larger even if the clock is set back.
GRACE_MS = 600_000


class ClaimsUnavailableError(Exception):
    """The store is down, slow or full: the caller computes by itself."""


class Answer(NamedTuple):
    """The state of a claim after an operation; the result only if it is done."""

    state: State
    fence: int = 0
    remaining_ms: int = 0
    result: bytes = b""


class Claims(Protocol):
    """A store of claims. Each method raises ClaimsUnavailableError if the store fails.

    `holder` is a secret of the caller; an operation after `acquire` needs it and the fence.
    """

    is_shared: bool
    """True if other processes use the same claims."""

    async def acquire(self, name: bytes, holder: bytes, ttl_ms: int) -> Answer:
        """Hold a free claim; the answer is `held`, `busy` or `done`.

        A holder that repeats it keeps its fence, so it may be sent again after a lost response.
        """

    async def renew(self, name: bytes, holder: bytes, fence: int, ttl_ms: int) -> Answer:
        """Extend a lease; the answer is `held` or `lost`."""

    async def complete(
        self, name: bytes, holder: bytes, fence: int, result: bytes, keep_ms: int
    ) -> Answer:
        """Publish the result; the answer is `done` or `lost`."""

    async def fail(self, name: bytes, holder: bytes, fence: int) -> Answer:
        """Free the claim, or withdraw its result; the answer is `free` or `lost`."""

    async def look(self, name: bytes) -> Answer:
        """Return the state without changing it: `free`, `busy` or `done`."""
