"""The response of a host: the head is checked first, then the content is read within limits."""

import asyncio
import re
from collections.abc import Callable

import httpcore
import httpx

from mmhash_service.limits.text import parse_natural
from mmhash_service.problems.problem import Problem


class Refused(Exception):  # noqa: N818  (named after its problem)
    """The host's address is not allowed, or the host redirects."""


class Failed(Exception):  # noqa: N818  (as above)
    """The response is not acceptable."""


class FetchFailure(Exception):  # noqa: N818  (never raised itself: the cause of a problem)
    """The cause of a problem, for the log only: host, address, status, error."""

    # The host chooses a part of the text.
    _MAX_LENGTH = 300

    def __init__(self, source: str, error: Exception) -> None:
        super().__init__(f"{source}: {error!r}"[: self._MAX_LENGTH])


PROBLEMS: dict[type[Exception], str] = {
    Refused: "url-refused",
    Failed: "url-failed",
    httpcore.NetworkError: "url-failed",
    httpcore.ProtocolError: "url-failed",
    httpcore.TimeoutException: "url-timeout",
    TimeoutError: "url-timeout",
}


def problem_name(error: Exception) -> str:
    """Return the name of the problem for an error."""
    return next(name for kind, name in PROBLEMS.items() if isinstance(error, kind))


# Other tasks run after each chunk smaller than this. A single read may bring thousands of one-byte
# chunks, which would block the event loop.
_SMALL_CHUNK = 1024


_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Remote:
    """Content that is arriving, or that the host says is unchanged."""

    def __init__(
        self,
        response: httpcore.Response,
        headers: httpx.Headers,
        max_bytes: int,
        *,
        unchanged: bool,
    ) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self.unchanged = unchanged
        length = None if unchanged else _length(response.status, headers)
        if length is not None and length > max_bytes:
            raise Problem("body-too-large", reason="the content of the URL is too long")
        # The number of bytes read.
        self.count = 0
        # The ETag to revalidate the content with, or None if the memo must not keep it.
        self.etag = etag_of(headers)

    async def read(self, take: Callable[[bytes], None]) -> None:
        """Pass each chunk to `take` as it arrives.

        Content that is too long, or ends before its announced length, raises an error.
        """
        async for chunk in self._response.aiter_stream():
            self.count += len(chunk)
            if self.count > self._max_bytes:
                raise Problem("body-too-large", reason="the content of the URL is too long")
            take(chunk)
            if len(chunk) < _SMALL_CHUNK:
                await asyncio.sleep(0)


def _length(status: int, headers: httpx.Headers) -> int | None:
    """Return the announced length of the content, or None for a chunked response."""
    if status in _REDIRECTS:
        raise Refused(f"a redirect with status {status}")
    if status != 200:
        raise Failed(f"status {status}")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Failed("content-encoding")
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    # Content that ends with the connection may have been cut off unnoticed.
    if (length is None) == (coding is None):
        raise Failed("needs either Content-Length or Transfer-Encoding")
    return None if length is None else parse_natural(length)


# A weak ETag (W/"x") allows the bytes to differ. One beyond ASCII could not be sent back unchanged.
_STRONG_ETAG = re.compile(r'"[\x21\x23-\x7e]{0,1022}"')

_NO_STORE = {"no-store", "private"}


def etag_of(headers: httpx.Headers) -> str | None:
    """Return the strong ETag, which proves content unchanged byte for byte, if it may be kept."""
    directives = {
        part.partition("=")[0].strip().lower()
        for part in headers.get("cache-control", "").split(",")
    }
    # All our requests have the same headers, so only `*` in Vary matters.
    varies = any(name.strip() == "*" for name in headers.get("vary", "").split(","))
    etag: str = headers.get("etag", "")
    is_kept = not (directives & _NO_STORE or varies) and _STRONG_ETAG.fullmatch(etag)
    return etag if is_kept else None
