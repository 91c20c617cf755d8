"""Address checks: only public addresses, and those of networks that the operator allows.

The tables follow IANA's registries of special addresses. Python's `is_global` is not used: it
includes multicast and differs between patch releases.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

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

# All other addresses are special: loopback, link-local, site-local, unique local, multicast, and
# embedded IPv4 addresses (mapped, compatible, translated, NAT64).
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
        return False  # a zone has a meaning on this host only, never in DNS
    return is_public(address) or any(address in network for network in networks)


def is_public(address: Address) -> bool:
    """Return True if the address is on the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)
