"""The functions video() and audio()."""

import mmap
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple

from mmhash.arguments import check_choice
from mmhash.cpu import hash_bytes
from mmhash.digest import Digest, check_algorithm
from mmhash.errors import InputTypeError, InputValueError
from mmhash.framing import frame
from mmhash.hashing import key
from mmhash.media.container import Buffer, read_audio_index, read_video_index
from mmhash.media.frames import decode_audio, decode_video
from mmhash.media.growing import GrowingAudio, GrowingVideo
from mmhash.media.recipe import (
    AudioRecipe,
    Rational,
    Size,
    VideoRecipe,
    bind_recipe,
    recipe_key,
    select_audio,
    select_video,
)
from mmhash.view import bytes_of

Source = Buffer | str | PathLike[str]
By = Literal["source", "frames"]


class VideoClip(NamedTuple):
    """The key of a video under a recipe."""

    key: Digest
    recipe: VideoRecipe
    frames: list[Digest]
    """The key of each selected frame, if they were decoded."""


class AudioClip(NamedTuple):
    """The key of an audio clip under a recipe."""

    key: Digest
    recipe: AudioRecipe
    windows: list[Digest]
    """The key of each window, if the samples were decoded; the last may be shorter."""


def video(
    source: Source,
    *,
    fps: Rational | None = None,
    count: int | None = None,
    indices: Iterable[int] | None = None,
    max_frames: int | None = None,
    size: Size | None = None,
    by: By = "source",
    algorithm: str = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
) -> VideoClip:
    """Return the key of a video, as bytes or a path, under the recipe of the other arguments.

    By source, the key covers the file's bytes and the recipe; nothing is decoded. By frames, it
    is the key of the list of the decoded RGB frames, so equal frames of two files have equal keys.
    """
    _check_by(by)
    data = _open_source(source)
    recipe = select_video(
        read_video_index(data),
        fps=fps,
        count=count,
        indices=indices,
        max_frames=max_frames,
        size=size,
    )
    if by == "source":
        # Before the hash empties the core's caches: after it, this takes 30 µs more. To hash each
        # part just before its headers are read gains nothing, and reading the index in a thread
        # beside the hash took 1.39 times the CPU time of the hash, in place of 1.27.
        canonical = recipe.canonical()
        whole = _key_of(data, algorithm, tenant, threads)
        return VideoClip(bind_recipe(whole, canonical), recipe, [])
    clip = GrowingVideo(algorithm=algorithm, tenant=tenant)
    for picture in decode_video(data, recipe):
        clip.append(picture)
    return VideoClip(clip.key(), recipe, clip.frames)


def audio(
    source: Source,
    *,
    rate: int | None = None,
    channels: int | None = None,
    start: Rational = 0,
    stop: Rational | None = None,
    window: Rational | None = None,
    by: By = "source",
    algorithm: str = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
) -> AudioClip:
    """Return the key of an audio clip, as bytes or a path, under the recipe of the arguments.

    `start`, `stop` and `window` are in seconds. By frames, the key is that of the list of the
    windows, each a float32 tensor of samples by channels.
    """
    _check_by(by)
    data = _open_source(source)
    recipe = select_audio(
        read_audio_index(data),
        rate=rate,
        channels=channels,
        start=start,
        stop=stop,
        window=window,
    )
    if by == "source":
        whole = _key_of(data, algorithm, tenant, threads)
        return AudioClip(recipe_key(whole, recipe), recipe, [])
    # Without windows, the range is one.
    clip = GrowingAudio(recipe.window or 1 << 62, algorithm=algorithm, tenant=tenant)
    for samples in decode_audio(data, recipe):
        clip.append(samples)
    windows = clip.windows if clip.tail is None else [*clip.windows, clip.tail]
    return AudioClip(clip.key(), recipe, windows)


def _open_source(source: Source) -> Buffer:
    """Return the bytes of a source; a file is mapped, and read by FFmpeg only as a buffer.

    The file is unmapped with the last view of it: the traceback of an error can have one, and then
    a map cannot be closed.
    """
    if isinstance(source, (bytes, bytearray, memoryview, mmap.mmap)):
        if len(source) == 0:
            raise InputValueError("the media is empty")
        return bytes_of(source) if isinstance(source, memoryview) else source
    if not isinstance(source, (str, PathLike)):
        raise InputTypeError(f"media is bytes or a path, not {type(source).__name__}")
    with Path(source).open("rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise InputValueError("the media is empty") from error


def _key_of(data: Buffer, algorithm: str, tenant: bytes | None, threads: int | None) -> Digest:
    """Return the key of a source's bytes, as `key()` does."""
    if isinstance(data, memoryview):  # of any format and strides
        return key(data, algorithm=algorithm, tenant=tenant, threads=threads)
    # key() looks for tensors and images first: that takes 30 µs after 20 MB were hashed.
    content = hash_bytes(memoryview(data), check_algorithm(algorithm), threads)
    return frame("bytes", "", (), content, tenant=tenant)


def _check_by(by: str) -> None:
    check_choice("by", by, "source", "frames")
