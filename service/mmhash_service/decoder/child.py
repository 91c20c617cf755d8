"""The service's side of a decoder process: sends jobs and receives results without blocking."""

import asyncio
import os
import socket
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import msgspec

from mmhash_service.decoder.messages import LENGTH_SIZE, MAX_ANSWER, Answer, ImageJob, frame

_MODULE = "mmhash_service.decoder.process"

# What Python and its libraries need. The settings in the environment may be secret.
_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "TMPDIR")

_MAX_READ = 1 << 20

_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class DecoderEndedError(Exception):
    """The process exited, or sent an invalid message."""


class DecoderProcess:
    """A decoder process, and the socket that connects it."""

    def __init__(self, max_pixels: int, max_nbytes: int) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            arguments = (theirs.fileno(), os.getpid(), max_pixels, max_nbytes)
            try:
                self._process = subprocess.Popen(  # noqa: S603  (no argument is a client's)
                    [sys.executable, "-P", "-m", _MODULE, *map(str, arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_environment(),
                    pass_fds=[theirs.fileno()],
                    # Ctrl-C stops the service, which must still answer its requests.
                    start_new_session=True,
                )
            except OSError:
                self._connection.close()
                raise
        self.pid = self._process.pid
        self._connection.setblocking(False)

    @property
    def runs(self) -> bool:
        """True unless the process has exited."""
        return self._process.poll() is None

    async def run(self, job: ImageJob, body: memoryview) -> Answer:
        """Send a job with its image, and return the result."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._connection, frame(job))
        await loop.sock_sendall(self._connection, body)
        return await self.receive()

    async def receive(self) -> Answer:
        """Return the next message of the process."""
        length = int.from_bytes(await self._read(LENGTH_SIZE), "little")
        if length > MAX_ANSWER:
            raise DecoderEndedError
        try:
            return _ANSWERS.decode(await self._read(length))
        except msgspec.DecodeError:
            raise DecoderEndedError from None

    async def _read(self, nbytes: int) -> bytes:
        loop = asyncio.get_running_loop()
        pieces = BytesIO()
        while missing := nbytes - pieces.tell():
            piece = await loop.sock_recv(self._connection, min(missing, _MAX_READ))
            if not piece:
                raise DecoderEndedError
            pieces.write(piece)
        return pieces.getvalue()

    async def end(self) -> int:
        """Kill the process unless it has exited, and return its exit code."""
        self._connection.close()
        self._process.kill()
        while (code := self._process.poll()) is None:  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.002)
        return code


def _environment() -> dict[str, str]:
    """Return the environment of a decoder."""
    environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    # Otherwise numpy starts a thread for each core.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    if "PYTHONPATH" in environment:
        # opentelemetry-instrument adds a folder that runs code in every Python process: it would
        # start exporters before the decoder has confined itself.
        folders = environment["PYTHONPATH"].split(os.pathsep)
        kept = [each for each in folders if not (Path(each) / "sitecustomize.py").exists()]
        environment["PYTHONPATH"] = os.pathsep.join(kept)
    return environment
