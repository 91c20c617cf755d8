"""The address of the service and the proxy to it, checked when a client is created."""

import os
from dataclasses import dataclass
from typing import Any, Self
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from mmhash.arguments import check_str
from mmhash.errors import InputTypeError, InputValueError

_SCHEMES = ("http", "https")
# The maximum length of a label of a host name (RFC 1035).
_MAX_LABEL = 63
# The size of the path in the address of a Unix socket, including the terminating zero byte.
_MAX_SOCKET_PATH = 108


@dataclass(frozen=True, slots=True)
class Address:
    """A scheme, a host and a port; `prefix` precedes the path of each request."""

    scheme: str
    host: bytes
    port: int | None
    netloc: bytes
    prefix: bytes
    uds: str | None
    proxy: httpcore.Proxy | None

    @classmethod
    def parse(cls, base_url: str, uds: str | os.PathLike[str] | None) -> Self:
        """Parse the URL, and read the environment's proxies; a Unix socket needs none."""
        url = _parse_url("base_url", base_url)
        if url.userinfo or url.query or url.fragment:
            raise InputValueError(
                "base_url is a scheme, a host and a path, without user, query and fragment:"
                " pass a key of the service as api_key"
            )
        return cls(
            url.scheme,
            url.raw_host,
            url.port,
            url.netloc,
            url.raw_path.rstrip(b"/"),
            None if uds is None else _socket_path(uds),
            _proxy_of(url) if uds is None else None,
        )

    def target(self, path: str) -> httpcore.URL:
        """Return the URL of a path with its query."""
        return httpcore.URL(
            scheme=self.scheme.encode(),
            host=self.host,
            port=self.port,
            target=self.prefix + path.encode(),
        )


def _parse_url(name: str, text: Any) -> httpx.URL:
    try:
        url = httpx.URL(check_str(name, text))
    except (httpx.InvalidURL, ValueError) as error:
        raise InputValueError(f"{name} is not a URL: {error}") from None
    if url.scheme not in _SCHEMES or not url.host:
        raise InputValueError(
            f"{name} begins with http:// or https:// and a host, such as http://127.0.0.1:8780,"
            f" not {text!r}"
        )
    if max(map(len, url.raw_host.split(b"."))) > _MAX_LABEL and b":" not in url.raw_host:
        raise InputValueError(f"{name} has a host name of more than {_MAX_LABEL} characters a part")
    if url.port is not None and not 1 <= url.port <= 65_535:
        raise InputValueError(f"{name} has a port from 1 to 65535, not {url.port}")
    return url


def _socket_path(path: str | os.PathLike[str]) -> str:
    try:
        text = os.fsdecode(path)
        length = len(os.fsencode(path))
    except TypeError:
        raise InputTypeError(f"uds is a path, not {type(path).__name__}") from None
    if not 0 < length < _MAX_SOCKET_PATH or "\0" in text:
        raise InputValueError(
            f"uds is a path of 1 to {_MAX_SOCKET_PATH - 1} bytes without zero bytes,"
            f" not of {length}"
        )
    return text


def _proxy_of(url: httpx.URL) -> httpcore.Proxy | None:
    """Return the proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY select, if any."""
    proxies = getproxies()
    text = proxies.get(url.scheme) or proxies.get("all")
    if not text or proxy_bypass(url.netloc.decode()):
        return None
    proxy = _parse_url("the proxy of the environment", text if "://" in text else f"http://{text}")
    auth = (proxy.username, proxy.password) if proxy.userinfo else None
    origin = httpcore.URL(
        scheme=proxy.raw_scheme, host=proxy.raw_host, port=proxy.port, target=b"/"
    )
    return httpcore.Proxy(origin, auth=auth)
