"""The messages between the service and a decoder process.

The service does not trust a decoder: it checks a message's length before it reads it, and then the
types.
"""

from typing import Annotated, Literal

import msgspec

from mmhash.digest import Algorithm

# Frames have their own limit, because a frame of one pixel costs Pillow far more than the pixel.
MAX_FRAMES = 10_000

# Enough to describe this many frames, each with a palette and a transparency table.
MAX_EXTRA = 16 << 20
MAX_ANSWER = MAX_EXTRA + 4096

# The size of the length in front of each message.
LENGTH_SIZE = 4

Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class ImageJob(msgspec.Struct, frozen=True):
    """An image to decode and hash. Its bytes follow the message."""

    algorithm: Algorithm
    nbytes: int
    max_pixels: int
    # An image that may take longer is deferred instead of decoded.
    max_cpu_s: float
    defer_above_s: float


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The process is ready. `unconfined` says why it has no system call filter, if it has none."""

    unconfined: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Decoded(msgspec.Struct, frozen=True, tag="decoded"):
    """A decoded image: everything that determines its key, and its EXIF orientation."""

    frames: Annotated[int, msgspec.Meta(ge=1, le=MAX_FRAMES)]
    nbytes: Natural
    digest: Annotated[bytes, msgspec.Meta(max_length=32)]
    extra: Annotated[bytes, msgspec.Meta(max_length=MAX_EXTRA)]
    orientation: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1


class Deferred(msgspec.Struct, frozen=True, tag="deferred"):
    """The image may take `cost_s` seconds of CPU time, which is more than the job allows."""

    cost_s: Seconds


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The name of a problem, and the reason for the log."""

    problem: Literal[
        "media-too-large",
        "damaged-media",
        "costly-media",
    ]
    reason: Annotated[str, msgspec.Meta(max_length=200)]
    # The reason for the caller. This is always our own text, never a decoding library's.
    shown: Annotated[str, msgspec.Meta(max_length=200)] | None = None


Answer = Hello | Decoded | Deferred | Refused


def frame(message: ImageJob | Answer) -> bytes:
    """Return a message with its length in front."""
    encoded = msgspec.msgpack.encode(message)
    return len(encoded).to_bytes(LENGTH_SIZE, "little") + encoded
