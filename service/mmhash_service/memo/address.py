"""Strict parsers for the URLs of the memo's stores: the server does not start with an invalid URL.

No error message contains any part of a URL: it may be a password.
"""

import re
import ssl
from collections.abc import Mapping
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

REDIS_SCHEMES = {
    f"{scheme}{topology}": (topology.removeprefix("+"), scheme == "rediss")
    for scheme in ("redis", "rediss")
    for topology in ("", "+cluster", "+sentinel")
}
"""The topology that each scheme names, and whether it is TLS."""

_URL = re.compile(
    r"(?P<scheme>[a-z+]+)://((?P<user>[^@:/?#]*)(:(?P<password>[^@/?#]*))?@)?"
    r"(?P<hosts>[^@/?#]+)(/(?P<path>[^?#]*))?(\?(?P<query>[^#]*))?"
)
_NODE = re.compile(
    r"(\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*))"
    r"(:(?P<port>[1-9][0-9]{0,4}))?"
)
_DATABASE = re.compile(r"0|[1-9][0-9]{0,5}")
_SERVICE = re.compile(r"[A-Za-z0-9._-]{1,255}")
_ESCAPED = re.compile(r"([^%]|%[0-9A-Fa-f]{2})*")
_DEFAULT_PORT = 6379

_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS_CHOICES: dict[str, dict[str, Any]] = {
    "ssl_cert_reqs": {"none": "none", "optional": "optional", "required": "required"},
    "ssl_check_hostname": {"true": True, "yes": True, "false": False, "no": False},
}
OPTIONS = (*_TLS_FILES, *_TLS_CHOICES)
"""The query options of `rediss` URLs."""


class SqliteAddress(NamedTuple):
    """A file on this host."""

    path: Path


class RedisAddress(NamedTuple):
    """One server, a cluster by some of its nodes, or a service that sentinels monitor."""

    topology: str
    """Empty for one server, `cluster` or `sentinel`."""
    nodes: list[tuple[str, int]]
    username: str | None
    password: str | None
    database: int
    service: str
    tls: Mapping[str, Any] | None
    """The TLS options of redis-py; None without TLS."""


def parse_sqlite_url(url: str) -> SqliteAddress:
    """Return the address in `sqlite:PATH`."""
    if not (path := url.removeprefix("sqlite:")):
        raise ValueError("a memo in SQLite is sqlite:PATH, and the path is empty")
    return SqliteAddress(Path(path))


def parse_redis_url(url: str) -> RedisAddress:
    """Return the address in a `redis` URL of any topology."""
    match = _URL.fullmatch(url)
    if match is None or match["scheme"] not in REDIS_SCHEMES:
        raise ValueError(
            "a memo URL for Redis is redis://HOST, redis+cluster://HOST,HOST or "
            "redis+sentinel://HOST,HOST/SERVICE, or the same with rediss; escape / ? # @ in a user "
            "or password as %2F %3F %23 %40"
        )
    topology, is_tls = REDIS_SCHEMES[match["scheme"]]
    nodes = [_parse_node(node) for node in match["hosts"].split(",")]
    if len(nodes) > 1 and not topology:
        raise ValueError(
            "redis:// takes one host: use redis+cluster:// or redis+sentinel:// for several"
        )
    service, database = _parse_path(topology, match["path"] or "")
    return RedisAddress(
        topology,
        nodes,
        _parse_credential(match["user"]),
        _parse_credential(match["password"]),
        database,
        service,
        _parse_options(match["query"] or "", is_tls=is_tls),
    )


def _parse_node(text: str) -> tuple[str, int]:
    match = _NODE.fullmatch(text)
    port = int(match["port"] or _DEFAULT_PORT) if match else 0
    if match is None or not 0 < port <= 65535 or len(match["name"] or "") > 253:
        raise ValueError(
            "a host in a memo URL is a name, an IPv4 address or an IPv6 address in brackets, "
            "optionally followed by a colon and a port from 1 to 65535"
        )
    if match["address"] is not None:
        try:
            return str(IPv6Address(match["address"])), port
        except ValueError:
            raise ValueError("a memo URL contains an invalid IPv6 address") from None
    return match["name"], port


def _parse_path(topology: str, path: str) -> tuple[str, int]:
    """Return the name of the sentinels' service and the number of the database."""
    service, slash, database = path.partition("/") if topology == "sentinel" else ("", "", path)
    if topology == "sentinel" and not _SERVICE.fullmatch(service):
        raise ValueError(
            "redis+sentinel:// needs a service name after the hosts: letters, digits, . _ and -"
        )
    if topology == "cluster" and database:
        raise ValueError("a Redis Cluster has no databases: remove the path of the URL")
    if (database or (slash and not database)) and not _DATABASE.fullmatch(database):
        raise ValueError("the path of a memo URL is the number of a database, such as /0")
    return service, int(database or 0)


def _parse_credential(text: str | None) -> str | None:
    if text is None or text == "":
        return None
    if not _ESCAPED.fullmatch(text):
        raise ValueError("a user or password in a memo URL contains an unescaped %: write %25")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("a user or password in a memo URL is not UTF-8") from None


def _parse_options(query: str, *, is_tls: bool) -> dict[str, Any] | None:
    known = f"rediss:// takes {', '.join(OPTIONS)}"
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ValueError(f"the options of a memo URL are ?NAME=VALUE&…: {known}") from None
    options = dict(pairs)
    if not set(options) <= set(OPTIONS) or (options and not is_tls):
        raise ValueError(f"a memo URL has an unknown option: {known}")
    if len(options) != len(pairs):
        raise ValueError("a memo URL has an option twice")
    for name, choices in _TLS_CHOICES.items():
        if options.get(name, next(iter(choices))).lower() not in choices:
            raise ValueError(f"{name} in a memo URL must be one of {', '.join(choices)}")
    if not is_tls:
        return None
    _check_tls_files(options)
    return {
        name: _TLS_CHOICES[name][value.lower()] if name in _TLS_CHOICES else value
        for name, value in options.items()
    }


def _check_tls_files(options: Mapping[str, str]) -> None:
    """Load the files once, so that the server does not start with a wrong one."""
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise ValueError("ssl_keyfile in a memo URL requires ssl_certfile")
    for name in _TLS_FILES:
        if name in options and not Path(options[name]).is_file():
            raise ValueError(f"{name} in a memo URL does not name a file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if "ssl_ca_certs" in options:
            context.load_verify_locations(options["ssl_ca_certs"])
        if "ssl_certfile" in options:
            # An empty password: otherwise OpenSSL prompts for one on the terminal.
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), "")
    except OSError:  # ssl.SSLError is one
        raise ValueError(
            "a file named in a memo URL contains no certificate or key in PEM"
        ) from None
