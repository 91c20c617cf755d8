"""The least that a server can do with a body: receive it into one buffer, and answer.

`python -m bench.support.receive_loop PORT` shows the limit of any server on uvloop: it has no
parser, no framework and no hash.
"""

import asyncio
import sys
from typing import cast

import uvloop

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
_BUFFER = memoryview(bytearray(256 << 10))


class Receiver(asyncio.BufferedProtocol):
    """A connection whose heads arrive apart from their bodies, as the load sends them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a head."""
        self._transport = cast("asyncio.Transport", transport)
        self._missing = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the same memory for every read."""
        del sizehint
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Count the bytes. Answer at the end of a body."""
        if self._missing == 0:
            head, _, body = bytes(_BUFFER[:nbytes]).partition(b"\r\n\r\n")
            length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
            self._missing = int(length) - len(body)
        else:
            self._missing -= nbytes
        if self._missing == 0:
            self._transport.write(_ANSWER)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", port)
    print(f"running on http://127.0.0.1:{port}", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
