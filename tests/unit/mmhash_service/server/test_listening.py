"""Sockets: the kernel keeps a limited part of a body, and a path may have another server's."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from mmhash_service.server.listening import ListenError, limit_unread, listening
from mmhash_service.settings import Settings

_SYSTEM_LIMIT = Path("/proc/sys/net/core/rmem_max")


def test_connections_have_the_limit_where_the_system_allows_it() -> None:
    unlimited, limited = _receive_buffer(socket.socket.fileno), _receive_buffer(limit_unread)
    if int(_SYSTEM_LIMIT.read_text()) < 4 << 20:
        assert limited == unlimited
    else:
        assert limited == 8 << 20  # the kernel doubles what it is asked for


def _receive_buffer(prepare: Callable[[socket.socket], object]) -> int:
    """Return the size of the receive buffer of a connection that a listener has accepted."""
    with socket.socket() as listener, socket.socket() as client:
        prepare(listener)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            return connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


# A server that starts and stops: it listens at the path, and removes the socket.
_OTHER = """
import os, socket, sys
path = sys.argv[1]
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(path + "-of-the-other")
    listener.listen()
    print(flush=True)
    while True:
        try:
            os.link(path + "-of-the-other", path)
        except FileExistsError:  # the test listens
            continue
        os.unlink(path)
"""


def test_a_unix_socket_that_its_server_removes_meanwhile_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    command = [sys.executable, "-c", _OTHER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            errors = set()
            for _ in range(1000):
                try:
                    with listening(Settings(uds=path)):
                        pass
                except ListenError as error:
                    errors.add(str(error).partition(".")[0])
        finally:
            other.kill()
    assert errors <= {f"cannot listen on unix:{path}: Address already in use"}
