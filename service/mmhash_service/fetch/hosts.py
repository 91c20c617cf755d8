"""The allowlist of hosts for http(s) URLs: the setting `url_hosts`.

URLs are parsed nowhere else, so the host that is checked is also dialled and verified by TLS.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

import httpx

from mmhash_service.problems.problem import Problem

# The longest URL in UTF-8 bytes. URLs of media are shorter, and parsing longer ones takes long.
MAX_URL = 4096

_PORTS = {"http": 80, "https": 443}

# URL parsers disagree on missing slashes, backslashes, spaces and @, so all of these are refused. A
# port has ASCII digits only: int() would accept `+80`, `080`, `8_0` and digits of other scripts.
_URL = re.compile(
    r"(?:http|https)://(?P<host>\[[^\]]*\]|[^/?#@:\[\]]+)(?::[1-9][0-9]{0,4})?(?:[/?#].*)?",
    re.ASCII | re.IGNORECASE,
)
_ORIGIN = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*:/{0,2})(?:[^/?#]*@)?([^/?#]*)")
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\]")

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")

# Names that inet_aton() reads as an address: the last label is decimal, octal or hexadecimal.
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")

_ENTRY = re.compile(
    r"(?P<below>\*\.)?(?P<host>\[[^\]]*\]|[^:*/?#@]+)(?::(?P<port>[1-9][0-9]{0,4}))?"
)


class _Rule(NamedTuple):
    """An entry of the setting."""

    name: str
    below: bool
    port: int | None

    def allows(self, url: httpx.URL) -> bool:
        if self.port is None:
            is_port = url.port is None  # the default port of the scheme
        else:
            is_port = self.port == (url.port or _PORTS[url.scheme])
        host = url.raw_host.decode()
        return is_port and (host.endswith("." + self.name) if self.below else host == self.name)


class HostAllowlist:
    """The entries of `url_hosts`: `example.org` or `*.example.org`, optionally with a port."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._rules = [_parse_rule(entry) for entry in entries]

    def allowed(self, text: str) -> httpx.URL:
        """Return the parsed URL without its fragment, or raise a problem if it is not allowed."""
        url = _parse_url(text)
        if not self.has(url):
            raise Problem("url-off", reason=f"{origin_of(text)} is not in url_hosts")
        return url

    def has(self, url: httpx.URL) -> bool:
        """Return True if an entry allows the host and port of a parsed URL."""
        return any(rule.allows(url) for rule in self._rules)


def _parse_url(text: str) -> httpx.URL:
    is_long = len(text.encode(errors="replace")) > MAX_URL
    match = None if is_long or _AMBIGUOUS.search(text) else _URL.fullmatch(text)
    if match is None:
        raise _invalid(text)
    try:
        url = httpx.URL(text).copy_with(fragment=None)
    except (httpx.InvalidURL, ValueError) as error:
        raise _invalid(text) from error
    host = url.raw_host.decode()
    if not is_host(host) or not _is_plain(match["host"], host):
        raise _invalid(text)
    return url


def _invalid(text: str) -> Problem:
    reason = f"a URL with {origin_of(text)} is not http(s)://host/path in its normal form"
    return Problem("invalid-url", reason=reason)


def origin_of(text: str) -> str:
    """Return scheme and host of a URL for an error. User, path and query may be secret."""
    match = _ORIGIN.match(text)
    return "no scheme" if match is None else repr((match[1] + match[2])[:80])


def _is_plain(spelled: str, host: str) -> bool:
    """Return True if `spelled` is `host` in ASCII, in lower or upper case.

    httpx derives the host, and maps dots, digits and letters of other scripts to ASCII.
    """
    return spelled.isascii() and spelled.strip("[]").lower() == host


def _parse_rule(entry: str) -> _Rule:
    match = _ENTRY.fullmatch(entry)
    try:
        name = httpx.URL(f"//{match['host']}").raw_host.decode() if match else ""
    except (httpx.InvalidURL, ValueError):
        name = ""
    is_address = ":" in name or _NUMBER.fullmatch(name) is not None
    port = int(match["port"]) if match and match["port"] else None
    if (
        match is None
        or not (is_host(name) and _is_plain(match["host"], name))
        or (match["below"] and is_address)
        or (port or 0) > 65535
    ):
        raise ValueError(f"{entry!r} is not a host: write example.org, *.example.org or host:port")
    return _Rule(name, match["below"] is not None, port)


def is_host(host: str) -> bool:
    """Return True if `host` is a host name, or an IP address in its canonical spelling."""
    if ":" in host or _NUMBER.fullmatch(host):
        try:
            address = ip_address(host)
        except ValueError:
            return False
        # An IPv4 address in IPv6 is refused: Python 3.13 changed its canonical spelling.
        is_mapped = isinstance(address, IPv6Address) and address.ipv4_mapped is not None
        return str(address) == host and "%" not in host and not is_mapped
    return len(host) <= 253 and all(map(_LABEL.fullmatch, host.split(".")))
