"""Thousands of calls sent without waiting for an answer, so that they pile up behind the first.

Of a connection 32 calls wait behind one that is answered; with one more it is cut off.
"""

import socket
from threading import Thread
from typing import Any

from tests.support.victim import flood

CALL = b"GET /version HTTP/1.1\r\nHost: test\r\n\r\n"
MIB = 1 << 20


def test_a_flood_is_cut_off(server: Any) -> None:
    before = server.memory()
    with server.connect() as connection:
        reader = Thread(target=_read_all, args=(connection,))
        reader.start()
        flood(connection, CALL * 10_000, count=1000)
        reader.join()
    assert server.memory() - before < 64 * MIB


def _read_all(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            pass
    except OSError:
        pass


def test_a_few_calls_at_once_are_all_answered(server: Any) -> None:
    last = CALL.replace(b"Host", b"Connection: close\r\nHost")
    answer = server.send_raw(CALL * 31 + last)
    assert answer.count(b"HTTP/1.1 200 ") == 32
