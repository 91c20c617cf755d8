"""Connections to checked addresses: a name is resolved once, and the checked address is dialled.

There is no second lookup, so a name server cannot change its answer after the check (DNS
rebinding).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

import httpcore

from mmhash_service.fetch.addresses import Network, find_refused
from mmhash_service.fetch.failures import Refused

Resolve = Callable[[str, int], Awaitable[list[str]]]

# The number of addresses of a host that are tried.
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
        """Connect to the first reachable address; raise Refused if one is not allowed."""
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            # The same problem as for a refused address: a client must not learn which names exist
            # in the internal network.
            raise Refused(f"no address: {error}") from error
        # A refused address among public ones is an attack: dial none of them.
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
