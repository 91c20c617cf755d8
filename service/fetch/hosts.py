"""Which http(s) URLs may be asked: those whose host and port the setting `url_hosts` names.

A URL is read once, here: what is compared is what is dialled and what TLS has to prove.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import NamedTuple

import httpx
import idna

from mmhash_service.api.problems import Problem

# In UTF-8. Longer ones are no addresses of media; one of this length takes 0.4 ms to read, or 3 ms
# if all of it must be escaped.
MAX_URL = 4096

_PORTS = {"http": 80, "https": 443}

# Readers of URLs differ over a missing slash, a backslash, a space and an @: none of them is taken.
# A port is 1 to 65535 in plain digits: int() would also read `+80`, `080`, `8_0` and digits of
# other scripts.
_URL = re.compile(
    r"(?:http|https)://(?P<host>\[[^\]]*\]|[^/?#@:\[\]]+)(?::[1-9][0-9]{0,4})?(?:[/?#].*)?",
    re.ASCII | re.IGNORECASE,
)
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\]")

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")

# What inet_aton() takes for (a part of) an address, in decimal, octal or hexadecimal.
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")

_ENTRY = re.compile(
    r"(?P<below>\*\.)?(?P<host>\[[^\]]*\]|[^:*/?#@]+)(?::(?P<port>[1-9][0-9]{0,4}))?"
)


class _Rule(NamedTuple):
    """One entry of the setting."""

    name: str
    below: bool
    port: int | None

    def allows(self, url: httpx.URL) -> bool:
        if self.port is None:
            named = url.port is None  # the scheme's own
        else:
            named = self.port == (url.port or _PORTS[url.scheme])
        host = url.raw_host.decode()
        return named and (host.endswith("." + self.name) if self.below else host == self.name)


class HostAllowlist:
    """The entries of `url_hosts`: `example.org`, `*.example.org`, each maybe with a port."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._rules = [_parse_rule(entry) for entry in entries]

    def allowed(self, text: str) -> httpx.URL:
        """The URL that `text` spells, without its fragment, if it may be asked."""
        url = _parse_url(text)
        if not any(rule.allows(url) for rule in self._rules):
            raise Problem("url-off")
        return url


def _parse_url(text: str) -> httpx.URL:
    is_long = len(text.encode(errors="replace")) > MAX_URL
    match = None if is_long or _AMBIGUOUS.search(text) else _URL.fullmatch(text)
    if match is None:
        raise Problem("invalid-url")
    try:
        url = httpx.URL(text).copy_with(fragment=None)
    except (httpx.InvalidURL, ValueError) as error:
        raise Problem("invalid-url") from error
    host = url.raw_host.decode()
    if not is_host(host) or not _is_plain(match["host"], host):
        raise Problem("invalid-url")
    return url


def _is_plain(spelled: str, host: str) -> bool:
    """Return whether `spelled` is the plain spelling of `host`, which httpx made of it.

    The letters of a name may be upper case. A name beyond ASCII is spelled as its A-labels are
    decoded: without the dots, digits and letters of other scripts that IDNA reads as ASCII.
    """
    if spelled.isascii():
        return spelled.strip("[]").lower() == host
    try:
        return idna.decode(host) == spelled
    except idna.IDNAError:
        return False


def _parse_rule(entry: str) -> _Rule:
    found = _ENTRY.fullmatch(entry)
    try:
        name = httpx.URL(f"//{found['host']}").raw_host.decode() if found else ""
    except (httpx.InvalidURL, ValueError):
        name = ""
    is_address = ":" in name or _NUMBER.fullmatch(name) is not None
    port = int(found["port"]) if found and found["port"] else None
    if (
        found is None
        or not (is_host(name) and _is_plain(found["host"], name))
        or (found["below"] and is_address)
        or (port or 0) > 65535
    ):
        raise ValueError(f"{entry!r} names no host: write example.org, *.example.org or host:port")
    return _Rule(name, found["below"] is not None, port)


def is_host(host: str) -> bool:
    """Return whether it is a name, or an address in the one spelling that all read alike."""
    if ":" in host or _NUMBER.fullmatch(host):
        try:
            return str(ip_address(host)) == host and "%" not in host
        except ValueError:
            return False
    return len(host) <= 253 and all(map(_LABEL.fullmatch, host.split(".")))
