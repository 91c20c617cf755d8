"""Content by http(s) URL: asked of hosts that are allowed, in bounded time, size and number."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import cache

import httpcore
import httpx

import mmhash
from mmhash_service.api.problems import Problem
from mmhash_service.fetch.dialing import CheckedBackend, Resolve, resolve
from mmhash_service.fetch.failures import PROBLEMS, Failed, FetchFailure, Refused, problem_name
from mmhash_service.fetch.hosts import HostAllowlist
from mmhash_service.fetch.remote import Remote
from mmhash_service.fetch.validators import Validator
from mmhash_service.runtime import metrics
from mmhash_service.settings import Settings

# One call asks for eight at once; the calls beyond four wait, within their time.
_MAX_CONNECTIONS = 32

# Shorter than the 5 s after which the commonest servers close a connection that nobody uses.
_IDLE_S = 4.0

_MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE | re.ASCII)

# The same for all requests: whatever a host's Vary names, it is equal.
_HEADERS = [
    ("Accept", "*/*"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", f"mmhash/{mmhash.__version__}"),
]


class Fetcher:
    """The one client of an application: a pool of connections, and whom it may ask."""

    def __init__(
        self,
        settings: Settings,
        resolve: Resolve = resolve,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._hosts = HostAllowlist(settings.url_hosts)
        self._max_bytes = settings.url_max_bytes
        self._timeout_s = settings.url_timeout_s
        # httpcore itself follows nothing, knows no proxy, decodes nothing and keeps no cookie.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trust or _public_trust(),
            max_connections=_MAX_CONNECTIONS,
            keepalive_expiry=_IDLE_S,
            network_backend=CheckedBackend(settings.url_networks, resolve),
        )

    def allowed(self, text: str) -> httpx.URL:
        """The URL that `text` spells, if it may be asked."""
        return self._hosts.allowed(text)

    @asynccontextmanager
    async def get(self, url: httpx.URL, known: Validator | None) -> AsyncIterator[Remote]:
        """What `url` has: told to be unchanged, if it is `known` by that, else to be read."""
        result = "abandoned"
        try:
            async with asyncio.timeout(self._timeout_s), self._follow(url, known) as remote:
                yield remote
            result = "unchanged" if remote.unchanged else "fetched"
        except Problem as problem:
            result = problem.name
            raise
        except tuple(PROBLEMS) as error:
            result = problem_name(error)
            raise Problem(result) from FetchFailure(url.host, error)
        finally:
            metrics.FETCHES.labels(result).inc()

    @asynccontextmanager
    async def _follow(self, url: httpx.URL, known: Validator | None) -> AsyncIterator[Remote]:
        asked = url
        for _ in range(_MAX_REDIRECTS + 1):
            async with aclosing(await self._ask(url, known)) as response:
                headers = httpx.Headers(response.headers)
                if response.status in _REDIRECTS:
                    # What is known is known of the URL that was asked for: where that leads may
                    # change.
                    url, known = self._redirected(url, headers.get("location", "")), None
                elif response.status != 304:
                    yield Remote(response, headers, self._max_bytes, keep=url == asked)
                    return
                elif known is None:
                    raise Failed("304, and nobody asked")
                elif known.is_confirmed(headers):
                    remote = Remote(response, headers, self._max_bytes, keep=True)
                    await remote.read(lambda _: None)
                    yield remote
                    return
                else:
                    known = None  # it speaks of other content: have that sent
        raise Refused("too many redirects")

    async def _ask(self, url: httpx.URL, known: Validator | None) -> httpcore.Response:
        """The answer to one request, of which the head has come."""
        request = httpcore.Request(
            "GET",
            httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=[("Host", url.netloc), *_HEADERS, *(known.headers() if known else ())],
            extensions={"timeout": {"connect": self._timeout_s}},
        )
        try:
            return await self._pool.handle_async_request(request)
        except (httpcore.ReadError, httpcore.RemoteProtocolError):
            # A host may hang up on an idle connection just when we use it: ask once more.
            return await self._pool.handle_async_request(request)

    def _redirected(self, url: httpx.URL, location: str) -> httpx.URL:
        """Where the host sends us on, if we go there: to the same host, checked anew."""
        try:
            # A location with a host is read as it came: joined, its host would be spelled anew.
            if location.startswith("//"):
                location = f"{url.scheme}:{location}"
            is_whole = _SCHEME.match(location) is not None
            found = self._hosts.allowed(location if is_whole else str(url.join(location)))
        except (Problem, httpx.InvalidURL, ValueError) as error:
            raise Refused(f"a redirect: {error!r}") from error
        if found.host != url.host or (found.scheme, url.scheme) == ("http", "https"):
            raise Refused(f"a redirect to {found.scheme}, {found.host}")
        return found

    async def close(self) -> None:
        """Let go of all connections."""
        await self._pool.aclose()


@cache
def _public_trust() -> ssl.SSLContext:
    """The authorities of the system and of certifi; reading them takes 40 ms, so once for all."""
    return httpcore.default_ssl_context()
