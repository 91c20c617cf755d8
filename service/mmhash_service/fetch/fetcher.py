"""The HTTP client for item URLs, with limits on hosts, addresses, time, size and connections."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import cache

import httpcore
import httpx

import mmhash
from mmhash_service.fetch.dialing import CheckedBackend, Resolve, resolve
from mmhash_service.fetch.hosts import HostAllowlist, origin_of
from mmhash_service.fetch.remote import (
    PROBLEMS,
    Failed,
    FetchFailure,
    Refused,
    Remote,
    problem_name,
)
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics, tracing

# A request fetches up to eight URLs at once. Fetches beyond this limit wait, within their time-out.
_MAX_CONNECTIONS = 32

# Shorter than the 5 s after which common servers close idle connections.
_IDLE_S = 4.0

_MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE | re.ASCII)

# The same for all requests, so a Vary header other than `*` never matters.
_HEADERS = [
    ("Accept", "*/*"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", f"mmhash/{mmhash.__version__}"),
]


class Fetcher:
    """The HTTP client of an application: a connection pool and an allowlist of hosts."""

    def __init__(
        self,
        settings: Settings,
        resolve: Resolve = resolve,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._hosts = HostAllowlist(settings.url_hosts)
        self._max_bytes = settings.max_body_bytes
        self._timeout_s = settings.work_timeout_s
        # httpcore follows no redirects, uses no proxy, decodes nothing and stores no cookies.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trust or (_public_trust() if settings.url_hosts else None),
            max_connections=_MAX_CONNECTIONS,
            keepalive_expiry=_IDLE_S,
            network_backend=CheckedBackend(settings.url_networks, resolve),
        )

    def allowed(self, text: str) -> httpx.URL:
        """Return the parsed URL; raise a Problem if the URL is invalid or not allowed."""
        return self._hosts.allowed(text)

    @asynccontextmanager
    async def get(self, url: httpx.URL, known: str | None) -> AsyncIterator[Remote]:
        """Yield the content of `url`, marked as unchanged if it still has the ETag `known`."""
        result = "abandoned"
        try:
            with tracing.span("fetch"):
                tracing.note("server.address", url.host)
                async with asyncio.timeout(self._timeout_s), self._follow(url, known) as remote:
                    yield remote
            result = "unchanged" if remote.unchanged else "fetched"
        except Problem as problem:
            result = problem.name
            raise
        except tuple(PROBLEMS) as error:
            result = problem_name(error)
            reason = f"the URL is of {origin_of(str(url))}"
            raise Problem(result, reason=reason) from FetchFailure(url.host, error)
        finally:
            metrics.FETCHES.labels(result).inc()

    @asynccontextmanager
    async def _follow(self, url: httpx.URL, known: str | None) -> AsyncIterator[Remote]:
        requested = url
        for _ in range(_MAX_REDIRECTS + 1):
            async with aclosing(await self._send(url, known)) as response:
                headers = httpx.Headers(response.headers)
                if response.status in _REDIRECTS:
                    # The ETag belongs to the requested URL, not to the target of the redirect.
                    url, known = self._redirect_target(url, headers.get("location", "")), None
                elif response.status != 304:
                    yield Remote(response, headers, self._max_bytes, keep=url == requested)
                    return
                elif known is None:
                    raise Failed("304 without a conditional request")
                elif headers.get("etag", known) == known:
                    remote = Remote(response, headers, self._max_bytes, keep=True)
                    await remote.read(lambda _: None)
                    yield remote
                    return
                else:
                    known = None  # the 304 names other content, so ask again without a condition
        raise Refused("too many redirects")

    async def _send(self, url: httpx.URL, known: str | None) -> httpcore.Response:
        """Send a request and return the response once its head has been received."""
        request = httpcore.Request(
            "GET",
            httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=[
                ("Host", url.netloc),
                *_HEADERS,
                *([("If-None-Match", known)] if known else ()),
            ],
            extensions={"timeout": {"connect": self._timeout_s}},
        )
        try:
            return await self._pool.handle_async_request(request)
        except (httpcore.ReadError, httpcore.RemoteProtocolError):
            # The host may have closed an idle connection just as it was reused: retry once.
            return await self._pool.handle_async_request(request)

    def _redirect_target(self, url: httpx.URL, location: str) -> httpx.URL:
        """Return the target of a redirect: on the same host, and checked like any URL."""
        try:
            # Parse an absolute location as received: join() would normalise the host before the
            # check.
            if location.startswith("//"):
                location = f"{url.scheme}:{location}"
            is_absolute = _SCHEME.match(location) is not None
            target = self._hosts.allowed(location if is_absolute else str(url.join(location)))
        except (Problem, httpx.InvalidURL, ValueError) as error:
            raise Refused(f"a redirect: {error!r}") from error
        if target.host != url.host or (target.scheme, url.scheme) == ("http", "https"):
            raise Refused(f"a redirect to {target.scheme}, {target.host}")
        return target

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


@cache
def _public_trust() -> ssl.SSLContext:
    """Return the certificate authorities of certifi or the system; loading them is slow."""
    return httpcore.default_ssl_context()
