"""Methods of both clients for the state of the service: `/info`, `/health` and `/ready`."""

from typing import Any

from mmhash.client.effects import Effects, Request
from mmhash.client.responses import document, malformed, member
from mmhash.client.retry import send_once, send_with_retry
from mmhash.client.session import Session
from mmhash.errors import ServiceError

INFO = Request("GET", "/info", limit=1 << 20)


def info(session: Session) -> Effects[dict[str, Any]]:
    """Return the features and limits of the service."""
    return parse_info(document((yield from send_with_retry(session, INFO))))


def parse_info(payload: Any) -> dict[str, Any]:
    """Validate the response to `GET /info`."""
    if not all(isinstance(name, str) for name in member(payload, "in_place", list)):
        malformed("its 'in_place' is not a list of names")
    info: dict[str, Any] = payload
    return info


def health(session: Session) -> Effects[bool]:
    """Return True if the service responds; without retries."""
    return (yield from _is_ok(session, "/health"))


def ready(session: Session) -> Effects[bool]:
    """Return True if the service accepts requests; without retries."""
    return (yield from _is_ok(session, "/ready"))


def _is_ok(session: Session, path: str) -> Effects[bool]:
    try:
        yield from send_once(session, Request("GET", path))
    except ServiceError:
        return False
    return True
