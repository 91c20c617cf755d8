"""A decoder process as the service sees it: jobs go out, results come back, nothing blocks."""

import asyncio
import errno
import mmap
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from typing import TypeVar

import msgspec

from mmhash_service.decoder.child_process import ChildProcess
from mmhash_service.decoder.messages import LENGTH_SIZE, MAX_ANSWER, Answer, ImageJob

T = TypeVar("T")

# The variables that Python and the libraries need, without the secrets among the settings.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "TMPDIR")

# How many bytes are copied before the event loop may run.
_PIECE = 1 << 20

# How much of a decoder's file is kept for the next image: new pages are slow.
_KEPT = 4 << 20

_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class DecoderEndedError(Exception):
    """The process exited, or sent an invalid message."""


class IdleEndError(Exception):
    """The process exited while it had no job."""


class DecoderProcess:
    """A process, and the file in which it receives images."""

    def __init__(self, max_pixels: int, max_nbytes: int) -> None:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        # By default, numpy would start a thread for each core.
        environment["OPENBLAS_NUM_THREADS"] = "1"
        with ExitStack() as files:
            self._file = files.enter_context(_memory_file())
            os.ftruncate(self._file, _KEPT)
            self._kept = mmap.mmap(self._file, _KEPT)
            files.callback(self._kept.close)
            self._process = ChildProcess(
                "mmhash_service.decoder.process",
                *(os.getpid(), max_pixels, max_nbytes),
                environment=environment,
            )
            self._files = files.pop_all()
        self.pid = self._process.pid
        self._connection = self._process.connection
        self._connection.setblocking(False)

    async def run(self, job: ImageJob, body: memoryview) -> Answer:
        """Send the job with its image, and return the result."""
        await self._share(body)
        socket.send_fds(self._connection, [msgspec.msgpack.encode(job)], [self._file])
        answer = await self.receive()
        if len(body) > _KEPT:
            os.ftruncate(self._file, _KEPT)
        return answer

    async def _share(self, body: memoryview) -> None:
        """Copy an image to the file, letting other tasks run between pieces."""
        for start in range(0, len(body), _PIECE):
            piece = body[start : start + _PIECE]
            end = start + len(piece)
            if end <= len(self._kept):
                self._kept[start:end] = piece
            elif os.pwrite(self._file, piece, start) != len(piece):
                # Missing bytes would be bytes of an earlier image.
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
        """Wait for the task; cancel it if the process exits, which meanwhile has no job."""
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
        """Kill the process if it still runs, and return its exit code."""
        self._process.kill()
        self._files.close()
        while (code := self._process.poll()) is None:  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.002)
        return code


@contextmanager
def _memory_file() -> Iterator[int]:
    """Open an anonymous file in memory, or on disk if the system lacks memfd_create."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mmhash-image")
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryFile() as file:
            yield file.fileno()
