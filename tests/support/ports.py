"""Ports for servers whose address others must know before they start, or while they restart."""

import secrets
import socket

# The system takes higher ports, by default from 32768 on, for outgoing connections and for servers
# that ask for any port. So none of them takes one of these before its server, or while it restarts.
_PORTS = range(10_000, 22_000)

# The bus of a Redis cluster has the port this much above the server's.
_BUS = 10_000


def free_port() -> int:
    """Return a port on which nothing listens, nor on the port of its cluster bus."""
    while True:
        port = secrets.choice(_PORTS)  # all test processes seed `random` alike
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + _BUS))
            except OSError:
                continue
        return port
