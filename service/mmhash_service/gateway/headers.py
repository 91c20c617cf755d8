"""The headers that pass between client and worker: end to end ones, without those of one hop."""

from collections.abc import Iterable

from mmhash.engines.caller_fields import PEER_HEADERS
from mmhash_service.limits.headers import SINGLE_VALUED

Header = tuple[bytes, bytes]

# RFC 9110, 7.6.1; Upgrade too, because only HTTP passes.
_OF_ONE_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

# Replaced by the gateway's own: the host, the length of the body that is sent, the request's id.
# Expect was answered by the gateway, and peers are for gateways that set them themselves.
_NOT_SENT = frozenset(
    {b"host", b"content-length", b"expect", b"x-request-id"}
    | {name.encode() for name in PEER_HEADERS}
)

# The server adds its own.
_NOT_RETURNED = frozenset({b"date", b"x-request-id"})


def for_worker(headers: Iterable[Header], *, keep_authorization: bool) -> list[Header]:
    """Return a client's headers that a worker gets."""
    dropped = _NOT_SENT if keep_authorization else _NOT_SENT | {b"authorization"}
    return _end_to_end(list(headers), dropped)


def for_client(headers: Iterable[Header]) -> list[Header]:
    """Return a worker's headers that the client gets."""
    return _end_to_end(list(headers), _NOT_RETURNED)


def request_head(
    method: bytes, target: bytes, host: bytes, headers: Iterable[Header], length: int | None
) -> bytes:
    """Return the head of a request; without a length it has no body."""
    lines = [b"%b %b HTTP/1.1\r\nhost: %b" % (method, target, host)]
    lines += [b"%b: %b" % header for header in headers]
    if length is not None:
        lines.append(b"content-length: %d" % length)
    return b"\r\n".join([*lines, b"", b""])


def _end_to_end(headers: list[Header], dropped: frozenset[bytes]) -> list[Header]:
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    # Without one of those, a worker would read another request: of its default tenant, for example.
    dropped = dropped | _OF_ONE_HOP | (named - SINGLE_VALUED)
    return [header for header in headers if header[0] not in dropped]
