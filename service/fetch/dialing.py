"""A name is resolved once, what comes is checked, and that very address is dialled.

A name server that answers otherwise the next time changes nothing: there is no next time.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

import httpcore

from mmhash_service.fetch.addresses import Network, refused
from mmhash_service.fetch.failures import Refused

Resolve = Callable[[str, int], Awaitable[list[str]]]

# More than these are not tried.
_MAX_ADDRESSES = 4


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system knows them, the best first."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class CheckedBackend(httpcore.AnyIOBackend):
    """Connects to hosts at addresses that may be dialled, and to no others."""

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
        """A connection to the first address that takes one; `Refused` if there may be none."""
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            # As if it were refused: else a client could ask which names are known in here.
            raise Refused(f"no address: {error}") from error
        # One bad address among good ones is no accident: none of them is dialled.
        if bad := refused(addresses, self._networks):
            raise Refused(f"an address is {bad[0]}")
        *others, last = addresses[:_MAX_ADDRESSES]
        share = None if timeout is None else timeout / (len(others) + 1)
        for address in others:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await super().connect_tcp(
                    address, port, share, local_address, socket_options
                )
        return await super().connect_tcp(last, port, share, local_address, socket_options)
