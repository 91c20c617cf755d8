"""The messages between the service and a decoder process.

Neither side trusts the other's: lengths are bounded before a message is read, types when it is.
"""

from typing import Annotated, Literal

import msgspec

from mmhash.digest import Algorithm

# A frame of one pixel costs Pillow far more than its pixel: the number of frames has its own limit.
MAX_FRAMES = 10_000

# The descriptions of so many frames, each with a palette and a table of transparency, are shorter.
MAX_EXTRA = 16 << 20
MAX_ANSWER = MAX_EXTRA + 4096

# Every answer stands behind its length.
LENGTH_SIZE = 4

# A job is sent as one message, with the descriptor of the memory that holds the file.
MAX_JOB = 4096

Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Job(msgspec.Struct, frozen=True, tag="image"):
    """An image to decode and hash; other kinds of files would have other tags."""

    algorithm: Algorithm
    nbytes: int
    max_pixels: int
    # A decoding that may take longer than the second is only begun if that is above.
    max_cpu_s: float
    defer_above_s: float


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The process is ready; `unconfined` says why no system call filter is active, if none is."""

    unconfined: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Decoded(msgspec.Struct, frozen=True, tag="decoded"):
    """An image by its pixels: everything that its key is made of."""

    frames: Annotated[int, msgspec.Meta(ge=1, le=MAX_FRAMES)]
    nbytes: Natural
    digest: Annotated[bytes, msgspec.Meta(max_length=32)]
    extra: Annotated[bytes, msgspec.Meta(max_length=MAX_EXTRA)]


class Deferred(msgspec.Struct, frozen=True, tag="deferred"):
    """The image may take `cost_s` seconds, more than the job allows."""

    cost_s: Seconds


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The name of a problem, and the reason for the log."""

    problem: Literal["image-too-large", "unsupported-image", "damaged-image", "costly-image"]
    reason: Annotated[str, msgspec.Meta(max_length=200)]


Answer = Hello | Decoded | Deferred | Refused
