"""Connects only to allowed addresses.

A name is resolved once, and the address that was checked is dialled. A second lookup would let a
name server change its answer after the check (DNS rebinding).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpcore

from mmhash_service.fetch.remote import Refused

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_SPECIAL_V4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network; 0.0.0.0 connects to this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, including cloud metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)

# Everything outside is special: loopback, link-local, site-local, unique local, multicast, and IPv4
# addresses in IPv6 (mapped, compatible, translated, NAT64).
_GLOBAL_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which embeds an IPv4 address
        "3fff::/20",  # documentation
    )
)


def find_refused(addresses: Sequence[str], networks: Sequence[Network]) -> list[str]:
    """Return the addresses that are neither public nor in one of the networks."""
    return [text for text in addresses if not _is_allowed(ip_address(text), networks)]


def _is_allowed(address: Address, networks: Sequence[Network]) -> bool:
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return False  # a zone means an interface of this host, which DNS cannot know
    return is_public(address) or any(address in network for network in networks)


def is_public(address: Address) -> bool:
    """Return True if the address is on the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)


Resolve = Callable[[str, int], Awaitable[list[str]]]

# Try at most this many addresses of a host.
_MAX_ADDRESSES = 4


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host from the system's resolver, in order of preference."""
    loop = asyncio.get_running_loop()
    entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in entries]


class CheckedBackend(httpcore.AnyIOBackend):
    """A network backend that connects only to allowed addresses."""

    def __init__(self, networks: Sequence[Network], resolve: Resolve) -> None:
        self._networks = networks
        self._resolve = resolve

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore's signature)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first reachable address. Raise Refused if any address is not allowed."""
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            # The problem of a refused address: clients must not learn which internal names exist.
            raise Refused(f"no address: {error}") from error
        # An internal address among public ones is an attack, so dial none of them.
        if bad := find_refused(addresses, self._networks):
            raise Refused(f"address {bad[0]} is not allowed")
        *others, last = addresses[:_MAX_ADDRESSES]
        share = None if timeout is None else timeout / (len(others) + 1)
        for address in others:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await super().connect_tcp(
                    address, port, share, local_address, socket_options
                )
        return await super().connect_tcp(last, port, share, local_address, socket_options)
