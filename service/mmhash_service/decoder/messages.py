"""The messages between the service and a decoder process.

Neither side trusts the other: lengths are checked before a message is read, and types afterwards.
"""

from typing import Annotated, Literal

import msgspec

from mmhash.digest import Algorithm

# A frame of one pixel costs Pillow far more than the pixel, so frames have their own limit.
MAX_FRAMES = 10_000

# Longer than the descriptions of that many frames, each with a palette and transparency table.
MAX_EXTRA = 16 << 20
MAX_ANSWER = MAX_EXTRA + 4096

# Each result follows its length.
LENGTH_SIZE = 4

# A job is one message, sent with the descriptor of the memory file that holds the image.
MAX_JOB = 1024

Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class ImageJob(msgspec.Struct, frozen=True):
    """An image to decode and hash."""

    algorithm: Algorithm
    nbytes: int
    max_pixels: int
    # An image that may take longer than `defer_above_s` is deferred, not decoded.
    max_cpu_s: float
    defer_above_s: float


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The process is ready; `unconfined` says why it has no system call filter."""

    unconfined: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Decoded(msgspec.Struct, frozen=True, tag="decoded"):
    """A decoded image: everything that its key is computed from, and its EXIF orientation."""

    frames: Annotated[int, msgspec.Meta(ge=1, le=MAX_FRAMES)]
    nbytes: Natural
    digest: Annotated[bytes, msgspec.Meta(max_length=32)]
    extra: Annotated[bytes, msgspec.Meta(max_length=MAX_EXTRA)]
    orientation: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1


class Deferred(msgspec.Struct, frozen=True, tag="deferred"):
    """The image may take `cost_s` seconds of CPU time, more than the job allows."""

    cost_s: Seconds


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The name of a problem, and the reason for the log."""

    problem: Literal[
        "media-too-large",
        "damaged-media",
        "costly-media",
    ]
    reason: Annotated[str, msgspec.Meta(max_length=200)]
    # For the caller: only our own messages, never a decoder's.
    shown: Annotated[str, msgspec.Meta(max_length=200)] | None = None


Answer = Hello | Decoded | Deferred | Refused
