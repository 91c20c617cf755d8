"""Which addresses may be dialled: public ones, and those of networks that the operator names.

The tables are those of IANA's registries of special addresses. Python's `is_global` has them too,
but says yes to multicast and differs from one patch release to another.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_SPECIAL_V4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network; 0.0.0.0 reaches this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # behind a carrier's NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and the clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)

# All else is special: loopback, link-local, site-local, unique local and multicast, and the IPv4
# addresses that lie embedded in mapped, compatible, translated and NAT64 ones.
_GLOBAL_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, with an IPv4 address in it
        "3fff::/20",  # documentation
    )
)


def refused(addresses: Sequence[str], networks: Sequence[Network]) -> list[str]:
    """Those of the addresses that may not be dialled."""
    return [text for text in addresses if not _may_dial(ip_address(text), networks)]


def _may_dial(address: Address, networks: Sequence[Network]) -> bool:
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return False  # a zone is this host's matter, and no name server's
    return is_public(address) or any(address in network for network in networks)


def is_public(address: Address) -> bool:
    """Whether whoever has the address is reached through the open network."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)
