"""Methods of both clients for `POST /claim`: leases and a registry of results."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from mmhash.arguments import check_str
from mmhash.client.effects import RESPONSE_BASE, Effects
from mmhash.client.responses import malformed, member
from mmhash.client.retry import post_json
from mmhash.client.session import Session
from mmhash.errors import InputTypeError

_STATES = frozenset({"held", "busy", "done", "free"})
_MAX_FENCE = 1 << 53
_MAX_MS = 1 << 53

# A result has at most 16 KiB of JSON, perhaps escaped.
_RESULT_BYTES = 100 << 10


class Claim(NamedTuple):
    """The state of a claim; `holder` and `fence` are needed to change one that is held.

    `result` is what the holder published, if the state is `done`.
    """

    key: str
    state: Literal["held", "busy", "done", "free"]
    fence: int
    holder: str = ""
    remaining_s: float = 0.0
    result: dict[str, Any] | None = None


def claim(session: Session, key: str, *, ttl: float = 10.0, wait: float = 0.0) -> Effects[Claim]:
    """Acquire a claim: `held` by the caller for `ttl` seconds, `busy`, or `done` with its result.

    With `wait`, up to 30 seconds, it waits for the result, and takes over if the holder exits.
    """
    check_str("key", key)
    holder = secrets.token_hex(16)
    body = {"action": "acquire", "key": key, "holder": holder, "ttl_s": ttl, "wait_s": wait}
    return (yield from _post(session, key, holder, body))


def wait_claim(session: Session, key: str, *, wait: float = 10.0) -> Effects[Claim]:
    """Wait, up to 30 seconds, until a claim is `done` or `free`, without acquiring it."""
    body = {"action": "wait", "key": check_str("key", key), "wait_s": wait}
    return (yield from _post(session, key, "", body))


def renew_claim(session: Session, held: Claim, *, ttl: float = 10.0) -> Effects[Claim]:
    """Extend the lease of a claim that the caller holds."""
    return (yield from _change(session, held, "renew", {"ttl_s": ttl}))


def complete_claim(
    session: Session, held: Claim, result: Mapping[str, Any], *, keep: float = 600.0
) -> Effects[Claim]:
    """Publish the result of a claim, such as the worker and the handle, for `keep` seconds."""
    if not isinstance(result, Mapping):
        raise InputTypeError(f"result is a dict, not {type(result).__name__}")
    return (yield from _change(session, held, "complete", {"result": dict(result), "keep_s": keep}))


def fail_claim(session: Session, held: Claim) -> Effects[Claim]:
    """Give a claim up, or withdraw its result: the next caller may acquire it at once."""
    return (yield from _change(session, held, "fail", {}))


def find_claims(session: Session, keys: Iterable[str]) -> Effects[list[Claim]]:
    """Return the state of up to 64 claims, with the results of those that are done."""
    if isinstance(keys, str):  # its characters would be keys
        raise InputTypeError("find_claims() takes a list of keys, not one str")
    names = [check_str("key", key) for key in keys]
    body = {"action": "find", "keys": names}
    limit = RESPONSE_BASE + _RESULT_BYTES * len(names)
    payload = yield from post_json(session, "/claim", body, limit=limit)
    found = member(payload, "claims", list)
    if len(found) != len(names):
        malformed("it does not have a claim for each key")
    return [_parse(key, "", one) for key, one in zip(names, found, strict=True)]


def _change(
    session: Session, held: Claim, action: str, fields: Mapping[str, Any]
) -> Effects[Claim]:
    if not isinstance(held, Claim):
        raise InputTypeError(f"a Claim is needed, not {type(held).__name__}")
    body: dict[str, Any] = {
        "action": action,
        "key": held.key,
        "holder": held.holder,
        "fence": held.fence,
    }
    return (yield from _post(session, held.key, held.holder, {**body, **fields}))


def _post(session: Session, key: str, holder: str, body: Mapping[str, Any]) -> Effects[Claim]:
    payload = yield from post_json(session, "/claim", body, limit=RESPONSE_BASE + _RESULT_BYTES)
    return _parse(key, holder, payload)


def _parse(key: str, holder: str, payload: Any) -> Claim:
    state = member(payload, "state", str)
    fence = member(payload, "fence", int)
    remaining_ms = payload.get("remaining_ms", 0)
    result = payload.get("result")
    if state not in _STATES or not 0 <= fence < _MAX_FENCE:
        malformed("it is not the state of a claim")
    if type(remaining_ms) is not int or not 0 <= remaining_ms < _MAX_MS:
        malformed("its 'remaining_ms' is not a number of milliseconds")
    if (state == "done") != isinstance(result, dict):
        malformed("a claim has a result exactly if it is done")
    return Claim(key, state, fence, holder, remaining_ms / 1000, result)
