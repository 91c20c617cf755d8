"""Claims in Redis, for all replicas: a Lua script, which Redis runs atomically.

Deadlines are those of Redis's clock. A fence is the time of its acquisition in microseconds, or one
more than the last fence if that is larger: it grows even after Redis has lost its data.
"""

from typing import Any, Literal

from redis.exceptions import InvalidResponse, OutOfMemoryError, ReadOnlyError

from mmhash_service.claims.claims import (
    GRACE_MS,
    MAX_RESULT,
    Answer,
    ClaimsUnavailableError,
)
from mmhash_service.memo.breaker import Breaker, StoreUnavailableError
from mmhash_service.memo.redis import RedisStore
from mmhash_service.runtime import metrics

# A round trip takes 0.15 ms. A busy replica may be slow itself: with 0.25 s, 16 processes on two
# cores computed 45 times for 30 images. If Redis hangs, lookups of the memo, which give up after
# 50 ms, open the circuit first.
TIMEOUT_S = 1.0

# A prefix within that of the memo, so that one permission (`~mmhash:*`) covers both.
_PREFIX = b"claim:"

# Numbers are written by %.0f: Lua's own conversion has 14 digits, a fence has 16.
_SCRIPT = """
local op, holder, fence, ttl, result = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)
local old = redis.call('HMGET', KEYS[1], 'fence', 'holder', 'deadline', 'state', 'result')
local last, deadline, state = tonumber(old[1] or 0), tonumber(old[3] or 0), old[4] or 'free'
local live, same = deadline > now, old[2] == holder
local own = same and old[1] == fence
if op == 'look' or (op == 'acquire' and live and (state == 'done' or not same)) then
  if not live then return {'free', last, 0, ''} end
  if state == 'done' then return {'done', last, deadline - now, old[5]} end
  return {'busy', last, deadline - now, ''}
end
if op == 'acquire' then
  if not live then last = math.max(last + 1, now_us) end
  state, result = 'held', ''
elseif not own or (state == 'free' and op ~= 'fail') or (state ~= 'held' and op == 'renew') then
  return {'lost', 0, 0, ''}
elseif op == 'complete' then
  state = 'done'
elseif op == 'fail' then
  state, ttl, result = 'free', 0, ''
end
redis.call('HSET', KEYS[1], 'fence', string.format('%.0f', last), 'holder', holder,
  'deadline', string.format('%.0f', now + ttl), 'state', state, 'result', result)
redis.call('PEXPIRE', KEYS[1], ttl + tonumber(ARGV[6]))
return {state, last, ttl, result}
"""

_Operation = Literal["acquire", "renew", "complete", "fail", "look"]
_STATES: dict[bytes, Any] = {
    state.encode(): state for state in ("held", "busy", "done", "free", "lost")
}


class RedisClaims:
    """The claims at the memo's Redis, behind its circuit breaker."""

    is_shared = True

    def __init__(self, breaker: Breaker, store: RedisStore) -> None:
        self._breaker = breaker
        self._store = store

    async def acquire(self, name: bytes, holder: bytes, ttl_ms: int) -> Answer:
        """Hold a free claim."""
        return await self._run("acquire", name, holder, 0, ttl_ms)

    async def renew(self, name: bytes, holder: bytes, fence: int, ttl_ms: int) -> Answer:
        """Extend a lease."""
        return await self._run("renew", name, holder, fence, ttl_ms)

    async def complete(
        self, name: bytes, holder: bytes, fence: int, result: bytes, keep_ms: int
    ) -> Answer:
        """Publish the result."""
        return await self._run("complete", name, holder, fence, keep_ms, result)

    async def fail(self, name: bytes, holder: bytes, fence: int) -> Answer:
        """Free the claim, or withdraw its result."""
        return await self._run("fail", name, holder, fence)

    async def look(self, name: bytes) -> Answer:
        """Return the state without changing it."""
        return await self._run("look", name)

    async def _run(  # noqa: PLR0917  (in the order of the script's arguments)
        self,
        operation: _Operation,
        name: bytes,
        holder: bytes = b"",
        fence: int = 0,
        ttl_ms: int = 0,
        result: bytes = b"",
    ) -> Answer:
        arguments = (operation, holder, fence, ttl_ms, result, GRACE_MS)

        async def run() -> Answer | None:
            try:
                reply = await self._store.run_script(_SCRIPT, _PREFIX + name, *arguments)
            except (OutOfMemoryError, ReadOnlyError):
                # A full or read-only store still answers lookups: the circuit stays closed.
                return None
            answer = _parse(reply)
            if answer is None:
                await self._store.drop()
                raise InvalidResponse("the reply is not the state of a claim")
            return answer

        try:
            answer = await self._breaker.call(run, "claim", TIMEOUT_S)
        except StoreUnavailableError as error:
            raise ClaimsUnavailableError(str(error)) from error
        if answer is None:
            metrics.MEMO_FAILURES.labels("claim").inc()
            raise ClaimsUnavailableError("the store is full or read-only")
        return answer


def _parse(reply: Any) -> Answer | None:
    """Return the answer in a reply; None if it is the reply to something else."""
    match reply:
        case [bytes(state), int(fence), int(remaining_ms), bytes(result)] if (
            state in _STATES and fence >= 0 and remaining_ms >= 0 and len(result) <= MAX_RESULT
        ):
            return Answer(_STATES[state], fence, remaining_ms, result)
    return None
