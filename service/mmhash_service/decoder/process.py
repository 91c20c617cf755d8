"""A decoder process: runs one job after another, until the service exits or a limit is exceeded.

The service starts it as `python -m mmhash_service.decoder.process` with the arguments of `main`. It
imports little, and all of it before it gives up its privileges.
"""

import os
import socket
import sys
import time
from io import BytesIO
from itertools import product

import msgspec

# Pillow would import these at the first image, when the process may no longer open files.
from PIL import (  # noqa: F401
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageOps,
    JpegImagePlugin,
    MpoImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from mmhash.image import FORMATS
from mmhash_service.decoder import costs, sandbox
from mmhash_service.decoder.images import decode_image, pin_pillow
from mmhash_service.decoder.messages import (
    LENGTH_SIZE,
    Answer,
    Deferred,
    Hello,
    ImageJob,
    frame,
)
from mmhash_service.limits.malloc import tune_malloc


def main(descriptor: int, parent: int, max_pixels: int, max_nbytes: int) -> None:
    """Run the jobs that arrive on the socket with this descriptor."""
    sandbox.exit_with(parent)
    tune_malloc()
    pin_pillow()
    _load_plugins()
    connection = socket.socket(fileno=descriptor)
    incoming = connection.makefile("rb")
    # Discard what libraries print: it may quote the image.
    os.dup2(1, 2)
    idle = sandbox.address_space()
    unconfined = sandbox.enter(idle + costs.memory_bytes(max_nbytes, max_pixels))
    connection.sendall(frame(Hello(unconfined)))
    jobs: msgspec.msgpack.Decoder[ImageJob] = msgspec.msgpack.Decoder(ImageJob)
    while True:
        length = incoming.read(LENGTH_SIZE)
        if not length:
            return
        job = jobs.decode(incoming.read(int.from_bytes(length, "little")))
        budget = _Budget(job, idle)
        connection.sendall(frame(budget.spend(incoming.read(job.nbytes))))


class _DeferredError(Exception):
    """The image may take longer than this decoder accepts."""


class _Budget:
    """The time and memory of one job, which grow with each frame that is visited."""

    def __init__(self, job: ImageJob, idle: int) -> None:
        self._job, self._idle = job, idle
        self._start = time.process_time()
        self._limit_memory(job.max_pixels)

    def spend(self, body: bytes) -> Answer:
        """Decode the image. If it takes more CPU time than allowed, SIGPROF kills the process."""
        job = self._job
        try:
            self._grow(0, 0)
            if body[8:12] == b"WEBP":  # Pillow allocates before it reports the size
                self._limit_memory(job.max_pixels)
            return decode_image(body, job.algorithm, job.max_pixels, self._grow)
        except _DeferredError as deferred:
            return Deferred(*deferred.args)
        finally:
            sandbox.limit_cpu(0)

    def _grow(self, frames: int, pixels: int) -> None:
        job = self._job
        cpu_s = costs.cpu_seconds(job.nbytes, frames, pixels)
        if cpu_s > job.defer_above_s:
            raise _DeferredError(cpu_s)
        spent = time.process_time() - self._start
        sandbox.limit_cpu(max(min(cpu_s, job.max_cpu_s) - spent, 1e-3))
        self._limit_memory(pixels)

    def _limit_memory(self, pixels: int) -> None:
        sandbox.limit_memory(self._idle + costs.memory_bytes(self._job.nbytes, pixels))


def _load_plugins() -> None:
    """Decode an image of each format and mode, so that Pillow loads everything it needs."""
    for name, mode in product(FORMATS, ("RGB", "P")):
        body = BytesIO()
        image = Image.new(mode, (2, 2))
        if name != "WEBP" or mode == "RGB":
            image = image.convert("RGB") if name == "JPEG" else image
            image.save(body, name)
            decode_image(body.getvalue(), "blake3", 4)
            decode_image(body.getvalue()[:-8], "xxh3", 4)
    exif = Image.Exif()
    exif[274] = 6
    for name, options in (("TIFF", {"compression": "tiff_lzw"}), ("PNG", {})):
        body = BytesIO()
        Image.new("L", (2, 1)).save(body, name, exif=exif, **options)
        decode_image(body.getvalue(), "blake3", 4)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
