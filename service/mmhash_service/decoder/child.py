"""The service's side of a decoder process: sends jobs and receives results without blocking."""

import asyncio
import errno
import mmap
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import msgspec

from mmhash_service.decoder.messages import LENGTH_SIZE, MAX_ANSWER, Answer, ImageJob

T = TypeVar("T")

_MODULE = "mmhash_service.decoder.process"

# What Python and its libraries need. The settings in the environment may be secret.
_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "TMPDIR")

# Copy this much of an image, then let other tasks run.
_PIECE = 1 << 20

# This much of a decoder's memory file is reused for the next image, because new pages are slow.
_KEPT = 4 << 20

_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class DecoderEndedError(Exception):
    """The process exited, or sent an invalid message."""


class IdleEndError(Exception):
    """The process exited while it had no job."""


class DecoderProcess:
    """A decoder process, and the memory file that carries images to it."""

    def __init__(self, max_pixels: int, max_nbytes: int) -> None:
        with ExitStack() as files:
            self._file = files.enter_context(_memory_file())
            os.ftruncate(self._file, _KEPT)
            self._kept = mmap.mmap(self._file, _KEPT)
            files.callback(self._kept.close)
            self._connection, theirs = socket.socketpair()
            files.enter_context(self._connection)
            with theirs:
                arguments = (theirs.fileno(), os.getpid(), max_pixels, max_nbytes)
                self._process = subprocess.Popen(  # noqa: S603  (no argument is a client's)
                    [sys.executable, "-P", "-m", _MODULE, *map(str, arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_environment(),
                    pass_fds=[theirs.fileno()],
                    # Ctrl-C stops the service, which must still answer its requests.
                    start_new_session=True,
                )
            self._files = files.pop_all()
        self.pid = self._process.pid
        self._connection.setblocking(False)

    async def run(self, job: ImageJob, body: memoryview) -> Answer:
        """Send a job with its image, and return the result."""
        await self._share(body)
        socket.send_fds(self._connection, [msgspec.msgpack.encode(job)], [self._file])
        answer = await self.receive()
        if len(body) > _KEPT:
            os.ftruncate(self._file, _KEPT)
        return answer

    async def _share(self, body: memoryview) -> None:
        """Copy an image to the file, and let other tasks run between pieces."""
        for start in range(0, len(body), _PIECE):
            piece = body[start : start + _PIECE]
            end = start + len(piece)
            if end <= len(self._kept):
                self._kept[start:end] = piece
            elif os.pwrite(self._file, piece, start) != len(piece):
                # After a short write, the decoder would read the rest of an earlier image.
                raise OSError(errno.ENOSPC, "an image cannot be written to memory")
            if start:
                await asyncio.sleep(0)

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
            piece = await loop.sock_recv(self._connection, min(missing, _PIECE))
            if not piece:
                raise DecoderEndedError
            pieces.write(piece)
        return pieces.getvalue()

    async def watch(self, task: asyncio.Task[T]) -> T:
        """Wait for a task while the process is idle, and cancel the task if the process exits."""
        loop = asyncio.get_running_loop()
        has_exited = False

        def on_readable() -> None:
            nonlocal has_exited
            has_exited = True
            loop.remove_reader(self._connection)
            task.cancel()

        loop.add_reader(self._connection, on_readable)
        try:
            return await task
        except asyncio.CancelledError:
            if has_exited:
                raise IdleEndError from None
            raise
        finally:
            loop.remove_reader(self._connection)

    async def end(self) -> int:
        """Kill the process unless it has exited, and return its exit code."""
        self._files.close()
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


@contextmanager
def _memory_file() -> Iterator[int]:
    """Open an anonymous file in memory, or on disk where memfd_create is missing."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mmhash-image")
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryFile() as file:
            yield file.fileno()
