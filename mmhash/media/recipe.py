"""Recipes: which frames or samples of a source a model gets (docs/spec.md, section 11).

A recipe names the selected frames, not how they were requested, so requests for the same frames
share a key. Nothing here reads media.
"""

import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from blake3 import blake3

from mmhash.arguments import check_int
from mmhash.digest import Digest
from mmhash.errors import InputTypeError, InputValueError, LimitError
from mmhash.fields import field

RECIPE_CONTEXT = "mmhash 2026-11-22 recipe v1"

_pack_run = struct.Struct("<3Q").pack

# Twelve hours at 24 frames per second.
MAX_FRAMES = 1 << 20

# The limit for a width, a height, a rate or a number of channels.
MAX_DIMENSION = 1 << 24

Size = tuple[int, int]
"""A width and a height."""

Rational = int | float | Fraction
"""A rate or a time. A float counts as it is printed: 29.97 means 2997/100."""


class VideoIndex(NamedTuple):
    """The facts about a video stream that a selection of frames needs."""

    frames: int
    rate: Fraction
    """Frames per second, on average."""
    width: int
    height: int


class AudioIndex(NamedTuple):
    """The facts about an audio stream that a range of samples needs."""

    samples: int
    rate: int
    channels: int


class VideoRecipe(NamedTuple):
    """Selected frames of a video, and their size."""

    indices: Sequence[int]
    size: Size | None = None
    """None if the frames keep the source's size."""
    decoder: str = ""
    """The decoder and its version, if the recipe is for decoded pixels."""

    def canonical(self) -> bytes:
        """Return the bytes that equal recipes share."""
        runs = b"".join([_pack_run(*run) for run in runs_of(self.indices)])
        size = b"" if self.size is None else struct.pack("<2Q", *self.size)
        return b"".join(map(field, (b"video", runs, size, self.decoder.encode())))


class AudioRecipe(NamedTuple):
    """A range of an audio stream's samples, and their form."""

    start: int
    stop: int
    """The range in samples of the source, excluding `stop`."""
    rate: int
    channels: int
    window: int = 0
    """Samples per window at `rate`; 0 if the range is one window."""
    decoder: str = ""

    def canonical(self) -> bytes:
        """Return the bytes that equal recipes share."""
        span = struct.pack("<2Q", self.start, self.stop)
        form = struct.pack("<3Q", self.rate, self.channels, self.window)
        return b"".join(map(field, (b"audio", span, form, self.decoder.encode())))


def recipe_key(source: Digest, recipe: VideoRecipe | AudioRecipe) -> Digest:
    """Return the key of a source under a recipe, given the source's own key."""
    preimage = source.bytes + field(recipe.canonical())
    return Digest("blake3", blake3(preimage, derive_key_context=RECIPE_CONTEXT).digest())


def runs_of(indices: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return ascending indices as runs of first index, step and count, each as long as possible.

    A run of one index has step 0.
    """
    runs: list[tuple[int, int, int]] = []
    for index in indices:
        if runs:
            first, step, count = runs[-1]
            distance = index - (first + (count - 1) * step)
            if count == 1 or distance == step:
                runs[-1] = (first, distance, count + 1)
                continue
        runs.append((index, 0, 1))
    return runs


def select_video(
    index: VideoIndex,
    *,
    fps: Rational | None = None,
    count: int | None = None,
    indices: Iterable[int] | None = None,
    max_frames: int | None = None,
    size: Size | None = None,
) -> VideoRecipe:
    """Return the recipe for the frames that the arguments select; without any, for all frames.

    With `fps`, frame k is the frame shown at k / fps seconds. With `count`, the frames are evenly
    spaced from the first to the last. `max_frames` replaces a longer selection by `count`.
    """
    if [fps, count, indices].count(None) < 2:
        raise InputValueError("give at most one of fps, count and indices")
    if indices is not None:
        selected: Sequence[int] = _check_indices(indices, index.frames)
    elif fps is not None:
        selected = _at_rate(index, _rational(fps, "fps"))
    elif count is not None:
        selected = _spread(index.frames, _natural(count, "count", MAX_FRAMES))
    else:
        selected = range(index.frames)
    if max_frames is not None:
        limit = _natural(max_frames, "max_frames", MAX_FRAMES)
        if len(selected) > limit:
            if indices is not None:
                raise LimitError(f"there are {len(selected)} indices, and max_frames is {limit}")
            selected = _spread(index.frames, limit)
    return VideoRecipe(selected, _check_size(size, index))


def select_audio(
    index: AudioIndex,
    *,
    rate: int | None = None,
    channels: int | None = None,
    start: Rational = 0,
    stop: Rational | None = None,
    window: Rational | None = None,
) -> AudioRecipe:
    """Return the recipe for the samples from `start` to `stop`; all times are in seconds.

    `window` cuts the samples into windows of that length. `rate` and `channels` default to the
    source's.
    """
    first = _sample_at(start, "start", index)
    last = index.samples if stop is None else _sample_at(stop, "stop", index)
    if first >= last:
        raise InputValueError(f"the source has no sample between start and stop: {first} to {last}")
    out_rate = index.rate if rate is None else _natural(rate, "rate", MAX_DIMENSION)
    out_channels = index.channels if channels is None else _natural(channels, "channels", 64)
    length = 0
    if window is not None:
        length = int(_rational(window, "window") * out_rate)
        if length == 0:
            raise InputValueError("window is shorter than a sample")
        if length * index.rate >= (last - first) * out_rate:
            length = 0
    return AudioRecipe(first, last, out_rate, out_channels, length)


def _at_rate(index: VideoIndex, fps: int | Fraction) -> Sequence[int]:
    over, under = index.rate.numerator * fps.denominator, index.rate.denominator * fps.numerator
    if under >= over:
        return range(index.frames)
    count = -(-index.frames * under // over)
    return [number * over // under for number in range(count)]


def _spread(frames: int, count: int) -> Sequence[int]:
    if count >= frames:
        return range(frames)
    if count == 1:
        return range(1)
    return [number * (frames - 1) // (count - 1) for number in range(count)]


def _check_indices(indices: Iterable[int], frames: int) -> list[int]:
    selected: list[int] = []
    for index in indices:
        check_int("an index", index)
        if not (selected[-1] if selected else -1) < index < frames:
            raise InputValueError(
                f"indices must ascend from 0 to {frames - 1}: {index} does not fit"
            )
        selected.append(index)
    if not selected:
        raise InputValueError("indices must have at least one index")
    return selected


def _check_size(size: Size | None, index: VideoIndex) -> Size | None:
    if size is None:
        return None
    if not isinstance(size, tuple) or len(size) != 2:
        raise InputTypeError("size must be a tuple of width and height")
    width, height = (_natural(length, "size", MAX_DIMENSION) for length in size)
    return None if (width, height) == (index.width, index.height) else (width, height)


def _sample_at(time: Rational, name: str, index: AudioIndex) -> int:
    """Return the first sample at or after a time, at most the number of samples."""
    seconds = _rational(time, name, minimum=0)
    return min(index.samples, -(-seconds.numerator * index.rate // seconds.denominator))


def _natural(number: int, name: str, maximum: int) -> int:
    if not 1 <= check_int(name, number) <= maximum:
        raise InputValueError(f"{name} must be 1 to {maximum}, not {number}")
    return number


def _rational(number: Rational, name: str, minimum: int | None = None) -> int | Fraction:
    """Return a positive number, or one of at least `minimum`, as it is printed."""
    if isinstance(number, bool) or not isinstance(number, (int, float, Fraction)):
        raise InputTypeError(f"{name} must be a number, not {type(number).__name__}")
    try:
        # Not Fraction(float): 29.97 means 2997/100, the same as the text in a query.
        exact = Fraction(Decimal(repr(number))) if isinstance(number, float) else number
    except (ValueError, OverflowError) as error:
        raise InputValueError(f"{name} must be a finite number") from error
    over, under = exact.numerator, exact.denominator
    if over < (1 if minimum is None else minimum * under) or over > under << 32:
        raise InputValueError(f"{name} must be a positive number up to 2**32, not {number}")
    if under > 10**9:
        raise InputValueError(f"{name} must have at most 9 decimal places")
    return exact
