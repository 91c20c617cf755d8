"""The functions video() and audio()."""

import mmap
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from mmhash.digest import Algorithm, Digest
from mmhash.errors import InputTypeError, InputValueError
from mmhash.hashing import key
from mmhash.media.container import Buffer, read_audio_index, read_video_index
from mmhash.media.recipe import (
    AudioRecipe,
    Rational,
    Size,
    VideoRecipe,
    recipe_key,
    select_audio,
    select_video,
)
from mmhash.view import bytes_of

Source = Buffer | str | PathLike[str]


class VideoClip(NamedTuple):
    """The key of a video under a recipe."""

    key: Digest
    recipe: VideoRecipe


class AudioClip(NamedTuple):
    """The key of an audio clip under a recipe."""

    key: Digest
    recipe: AudioRecipe


def video(
    source: Source,
    *,
    fps: Rational | None = None,
    count: int | None = None,
    indices: Iterable[int] | None = None,
    max_frames: int | None = None,
    size: Size | None = None,
    algorithm: Algorithm = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
) -> VideoClip:
    """Return the key of a video under the recipe of the other arguments.

    The key covers the file's bytes and the recipe, and nothing is decoded. If you have decoded the
    frames yourself, `key(frames)` covers their content.

    Args:
        source: The file's bytes, or its path.
        fps: The frames per second that are selected; frame k is the one shown at k / fps seconds.
        count: Instead of `fps`, the number of frames, evenly spaced from the first to the last.
        indices: Instead of `fps`, the numbers of the frames, ascending.
        max_frames: A longer selection becomes `count=max_frames`.
        size: The width and height to which frames are scaled.
        algorithm: The algorithm of the digest in the key.
        tenant: 32 secret bytes, as in `key()`.
        threads: The number of threads that hash the source; all cores by default.
    """
    data = _open_source(source)
    recipe = select_video(
        read_video_index(data),
        fps=fps,
        count=count,
        indices=indices,
        max_frames=max_frames,
        size=size,
    )
    whole = key(data, algorithm=algorithm, tenant=tenant, threads=threads)
    return VideoClip(recipe_key(whole, recipe), recipe)


def audio(
    source: Source,
    *,
    rate: int | None = None,
    channels: int | None = None,
    start: Rational = 0,
    stop: Rational | None = None,
    window: Rational | None = None,
    algorithm: Algorithm = "blake3",
    tenant: bytes | None = None,
    threads: int | None = None,
) -> AudioClip:
    """Return the key of an audio clip under the recipe of the other arguments.

    Args:
        source: The file's bytes, or its path.
        rate: The samples per second; by default the source's.
        channels: The number of channels; by default the source's.
        start: The seconds at which the clip begins.
        stop: The seconds at which the clip ends; by default the source's end.
        window: The length of a window in seconds; by default the clip is one window.
        algorithm: The algorithm of the digest in the key.
        tenant: 32 secret bytes, as in `key()`.
        threads: The number of threads that hash the source; all cores by default.
    """
    data = _open_source(source)
    recipe = select_audio(
        read_audio_index(data),
        rate=rate,
        channels=channels,
        start=start,
        stop=stop,
        window=window,
    )
    whole = key(data, algorithm=algorithm, tenant=tenant, threads=threads)
    return AudioClip(recipe_key(whole, recipe), recipe)


def _open_source(source: Source) -> Buffer:
    """Return the bytes of a source. A file is mapped, so FFmpeg gets a buffer and never the path.

    The file stays mapped until its last view is gone. Closing the map would fail while the
    traceback of an error holds a view.
    """
    if isinstance(source, (bytes, bytearray, memoryview, mmap.mmap)):
        if len(source) == 0:
            raise InputValueError("the media is empty")
        return bytes_of(source) if isinstance(source, memoryview) else source
    if not isinstance(source, (str, PathLike)):
        raise InputTypeError(f"media must be bytes or a path, not {type(source).__name__}")
    with Path(source).open("rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise InputValueError("the media is empty") from error
