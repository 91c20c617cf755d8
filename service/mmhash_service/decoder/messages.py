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

# A job is one message, sent with the descriptor of the memory file that holds the image. The job of
# a clip lists the indices of its frames.
MAX_JOB = 16384

# How many frames or windows of a clip are decoded for one item.
MAX_PARTS = 1024

Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class ImageJob(msgspec.Struct, frozen=True, tag="image"):
    """An image to decode and hash."""

    algorithm: Algorithm
    nbytes: int
    max_pixels: int
    # An image that may take longer than `defer_above_s` is deferred, not decoded.
    max_cpu_s: float
    defer_above_s: float


class VideoSelection(msgspec.Struct, frozen=True, tag="frames"):
    """The frames to decode, and their size."""

    indices: list[int]
    size: tuple[int, int] | None


class AudioSelection(msgspec.Struct, frozen=True, tag="samples"):
    """The samples to decode, as in a recipe."""

    start: int
    stop: int
    rate: int
    channels: int
    window: int


class MediaJob(msgspec.Struct, frozen=True, tag="media"):
    """A video or audio clip: read its index, or hash the selected frames."""

    algorithm: Algorithm
    modality: Literal["video", "audio"]
    nbytes: int
    max_pixels: int
    max_cpu_s: float
    defer_above_s: float
    selection: VideoSelection | AudioSelection | None = None
    # How many pixels to decode, of all frames up to the last selected frame.
    pixels: int = 0


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


class VideoIndexed(msgspec.Struct, frozen=True, tag="video"):
    """The index of a video."""

    frames: Positive
    rate_over: Positive
    rate_under: Positive
    width: Positive
    height: Positive


class AudioIndexed(msgspec.Struct, frozen=True, tag="audio"):
    """The index of an audio clip."""

    samples: Positive
    rate: Positive
    channels: Positive


class Part(msgspec.Struct, frozen=True):
    """A frame of a video or a window of samples."""

    digest: Annotated[bytes, msgspec.Meta(max_length=32)]
    shape: Annotated[tuple[Positive, ...], msgspec.Meta(max_length=3)]


class PartsHashed(msgspec.Struct, frozen=True, tag="parts"):
    """The decoded parts of a clip."""

    parts: Annotated[list[Part], msgspec.Meta(min_length=1, max_length=MAX_PARTS)]


class Deferred(msgspec.Struct, frozen=True, tag="deferred"):
    """The image may take `cost_s` seconds of CPU time, more than the job allows."""

    cost_s: Seconds


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The name of a problem, and the reason for the log."""

    problem: Literal[
        "media-too-large",
        "unsupported-media-type",
        "damaged-media",
        "costly-media",
        "no-media-extra",
    ]
    reason: Annotated[str, msgspec.Meta(max_length=200)]
    # For the caller: only our own messages, never a decoder's.
    shown: Annotated[str, msgspec.Meta(max_length=200)] | None = None


Answer = Hello | Decoded | VideoIndexed | AudioIndexed | PartsHashed | Deferred | Refused
