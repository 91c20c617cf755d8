"""Fetches items by URL, with limits on hosts, addresses, time, length and connections."""

import asyncio
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
    FetchFailure,
    Remote,
    problem_name,
)
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics, tracing

# More fetches wait, within their time-out. One request fetches up to eight URLs at once.
_MAX_CONNECTIONS = 32

# Shorter than the 5 s after which common servers close idle connections.
_IDLE_S = 4.0

# The same for all requests, so a Vary header other than `*` never matters.
_HEADERS = [
    ("Accept", "*/*"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", f"mmhash/{mmhash.__version__}"),
]


class Fetcher:
    """An HTTP client with an allowlist of hosts."""

    def __init__(
        self,
        settings: Settings,
        resolve: Resolve = resolve,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._hosts = HostAllowlist(settings.url_hosts)
        self._max_bytes = settings.max_body_bytes
        self._timeout_s = settings.timeout_s
        # httpcore follows no redirects, uses no proxy, decodes nothing and keeps no cookies.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trust or (_public_trust() if settings.url_hosts else None),
            max_connections=_MAX_CONNECTIONS,
            keepalive_expiry=_IDLE_S,
            network_backend=CheckedBackend(settings.url_networks, resolve),
        )

    def allowed(self, text: str) -> httpx.URL:
        """Return the parsed URL. Raise a Problem if the URL is invalid or not allowed."""
        return self._hosts.allowed(text)

    @asynccontextmanager
    async def get(self, url: httpx.URL, known: str | None) -> AsyncIterator[Remote]:
        """Yield the content of `url`, marked as unchanged if it still has the ETag `known`."""
        result = "abandoned"
        try:
            with tracing.span("fetch"):
                tracing.note("server.address", url.host)
                async with asyncio.timeout(self._timeout_s), self._open(url, known) as remote:
                    yield remote
            result = "unchanged" if remote.unchanged else "fetched"
        except Problem as problem:
            result = problem.name
            raise
        except tuple(PROBLEMS) as error:
            result = problem_name(error)
            reason = f"the host is {origin_of(str(url))}"
            raise Problem(result, reason=reason) from FetchFailure(url.host, error)
        finally:
            metrics.FETCHES.labels(result).inc()

    @asynccontextmanager
    async def _open(self, url: httpx.URL, known: str | None) -> AsyncIterator[Remote]:
        async with aclosing(await self._send(url, known)) as response:
            headers = httpx.Headers(response.headers)
            is_unchanged = response.status == 304 and known is not None
            remote = Remote(response, headers, self._max_bytes, unchanged=is_unchanged)
            if is_unchanged:
                await remote.read(lambda _: None)
            yield remote

    async def _send(self, url: httpx.URL, known: str | None) -> httpcore.Response:
        """Send a request, and return the response once its head has arrived."""
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
            # Retry once: the host may have closed an idle connection just as it was reused.
            return await self._pool.handle_async_request(request)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


@cache
def _public_trust() -> ssl.SSLContext:
    """Load the certificate authorities. This is slow, so load them once."""
    return httpcore.default_ssl_context()
